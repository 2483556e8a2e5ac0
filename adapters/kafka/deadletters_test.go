package kafka

import (
	"testing"

	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
)

// Topic and group are read from a name of ours, with any dots and underscores. They are not read from a name that was
// cut or is not ours.
func TestSubscriptionsAreReadFromDLQNames(t *testing.T) {
	t.Parallel()
	for _, s := range [][2]string{{"orders", "billing"}, {"shop.eu.orders", "billing.v2"}, {"a_b", "c_2e"}, {"dlq", "dlq"}, {"o", "grün & blau"}} {
		if topic, group, ok := subscriptionOf(topology.Names{}.DLQTopic(s[0], s[1])); !ok || topic != s[0] || group != s[1] {
			t.Errorf("%q is read back as %q, %q, %v", s, topic, group, ok)
		}
	}
	long := make([]byte, 200)
	for i := range long {
		long[i] = 'x'
	}
	for _, name := range []string{".dlq", "orders.dlq", "orders..dlq", ".billing.dlq", "orders.bill+ing.dlq", topology.Names{}.DLQTopic(string(long), string(long))} {
		if topic, group, ok := subscriptionOf(name); ok {
			t.Errorf("%q is read as topic %q and group %q", name, topic, group)
		}
	}
}
