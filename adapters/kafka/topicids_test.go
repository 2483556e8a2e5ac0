package kafka

import "testing"

// A session that begins while one of its topics is deleted would read the next topic of that name from the offsets of
// the earlier one. Clusters before Kafka 2.8 have no ids.
func TestASessionNeedsAllItsTopics(t *testing.T) {
	t.Parallel()
	claims := map[string][]int32{"orders": {0}, "orders.billing.retry": {0}}
	for name, row := range map[string]struct {
		ids     topicIDs
		missing string
	}{
		"all":   {topicIDs{"orders": "a", "orders.billing.retry": "b"}, ""},
		"a few": {topicIDs{"orders": "a"}, "orders.billing.retry"},
		"no id": {topicIDs{"orders": "", "orders.billing.retry": ""}, ""},
	} {
		if got := row.ids.missing(claims); got != row.missing {
			t.Errorf("%s: %q is missing, want %q", name, got, row.missing)
		}
	}
}
