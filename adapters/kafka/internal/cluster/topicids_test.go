package cluster

import "testing"

// A session that begins while one of its topics is deleted must not read a later topic of that name from the offsets of
// the earlier one. Clusters before Kafka 2.8 have no ids.
func TestASessionNeedsAllItsTopics(t *testing.T) {
	t.Parallel()
	claims := map[string][]int32{"orders": {0}, "orders.billing.retry": {0}}
	for name, row := range map[string]struct {
		ids     TopicIDs
		missing string
	}{
		"all":   {TopicIDs{"orders": "a", "orders.billing.retry": "b"}, ""},
		"a few": {TopicIDs{"orders": "a"}, "orders.billing.retry"},
		"no id": {TopicIDs{"orders": "", "orders.billing.retry": ""}, ""},
	} {
		if got := row.ids.Missing(claims); got != row.missing {
			t.Errorf("%s: %q is missing, want %q", name, got, row.missing)
		}
	}
}
