package kafka

import (
	"testing"

	"github.com/redeliver/redeliver/delayqueue"
)

// FuzzLevelOfTopic parses arbitrary names of topics. If one is a delay topic, its level must make the same name.
func FuzzLevelOfTopic(f *testing.F) {
	f.Add("orders.billing.retry.10s", "orders", "billing")
	f.Add("orders.billing.retry.90s", "orders", "billing")
	f.Add("orders.a_2eb.retry.1m30s", "orders", "a.b")
	f.Add("orders.billing.retry.", "orders", "billing")
	f.Fuzz(func(t *testing.T, name, topic, group string) {
		level, ok := Names{}.level(topic, group, name)
		if ok && (level <= 0 || Names{}.delay(topic, group, level) != name) {
			t.Errorf("%q was read as level %s of %q and %q, whose name is %q", name, delayqueue.LevelName(level), topic, group, Names{}.delay(topic, group, level))
		}
	})
}
