package mq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// A plan has a table of topics or of queues, then its limits and what was found.
func TestPlanIsATextForPeople(t *testing.T) {
	topics := mq.Plan{
		Server: "Kafka", Origin: "orders", Group: "billing", LongestWait: time.Hour, Notes: []string{"a note"},
		Places: []mq.Place{
			{Name: "orders.billing.retry.10s", Kind: "delay", Partitions: 3, Replicas: 1, Exists: true},
			{Name: "orders.billing.retry.1m", Kind: "delay", Partitions: 3, Replicas: 1, OnDemand: true},
		},
	}
	const wantTopics = `orders, Kafka, group billing

topic                     kind   partitions  replicas  
orders.billing.retry.10s  delay  3           1         exists
orders.billing.retry.1m   delay  3           1         is created when a wait needs it

retry  after  jitter up to  waits on

longest wait that a handler may ask for: 1h; never early, a few milliseconds late
note: a note
`
	queues := mq.Plan{
		Server: "RabbitMQ 4.0", Origin: "orders", LongestWait: time.Minute, Settings: map[string]string{"b": "2", "a": "1"},
		Places: []mq.Place{
			{Name: "orders", Kind: "queue", Exists: true, Messages: 5}, {Name: "orders.dlq", Kind: "dlq", Messages: -1},
			{Name: "orders.retry.5s", Kind: "delay", Exists: true, Old: true},
		},
		Problems: []redeliver.Problem{{Field: "queue orders.dlq", Value: "missing", Rule: "must exist"}}, NotChecked: []string{"a policy"},
	}
	const wantQueues = `queue orders, RabbitMQ 4.0

queue            kind   messages   
orders           queue  5          exists
orders.dlq       dlq    not known  is created
orders.retry.5s  delay  0          is left over

setting  
a        1
b        2

retry  after  jitter up to  waits on

longest wait that a handler may ask for: 1m; never early, a few milliseconds late
refused: queue orders.dlq is missing: must exist
not checked: a policy
`
	for _, c := range []struct{ got, want string }{{topics.String(), wantTopics}, {queues.String(), wantQueues}} {
		if c.got != c.want {
			t.Errorf("got\n%s\nwant\n%s", c.got, c.want)
		}
	}
}

func TestAllowingAndSetting(t *testing.T) {
	rights := []mq.Right{{Name: "a", Operations: []string{"read", "write"}}, {Name: "b", Operations: []string{"read"}}}
	if got := mq.Allowing(rights, "read"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("read: %v", got)
	}
	if got := mq.Allowing(rights, "write"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("write: %v", got)
	}
	p := mq.Place{Settings: map[string]any{"retention.ms": "-1", "x-delivery-limit": 20}}
	if p.Setting("retention.ms") != "-1" || p.Setting("x-delivery-limit") != "20" || p.Setting("none") != "" {
		t.Error("settings are not texts")
	}
}
