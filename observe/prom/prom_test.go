package prom_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/observed/observedtest"
	"github.com/redeliver/redeliver/observe/prom"
	"github.com/redeliver/redeliver/redelivertest"
)

var errDeclined = errors.New("card declined")

func newSink(t *testing.T) (*prom.Sink, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	s, err := prom.New(prom.Config{System: "kafka", Registerer: r})
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func same(t *testing.T, r *prometheus.Registry, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// A real subscription handles three messages: one succeeds, one succeeds in its second attempt, one never succeeds.
func TestASubscriptionIsCounted(t *testing.T) {
	s, r := newSink(t)
	redelivertest.Run(t, func(_ *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{
			Group: "billing", Sink: s, Policy: redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(10 * time.Second)},
		})
		orders := c.Handle("orders", func(msg *message.Message) error {
			st, _ := redeliver.FromContext(msg.Context())
			if msg.UUID == "fails" || msg.UUID == "recovers" && st.Attempt() == 1 {
				return errDeclined
			}
			return nil
		})
		for _, id := range []string{"succeeds", "recovers", "fails"} {
			b.Publish("orders", message.NewMessage(id, nil))
		}
		for _, id := range []string{"succeeds", "recovers", "fails"} {
			orders.Outcome(id)
		}
	})
	same(t, r, `
# HELP redeliver_committed_total Messages that were handled and acked.
# TYPE redeliver_committed_total counter
redeliver_committed_total{group="billing",messaging_system="kafka",origin="orders"} 2
# HELP redeliver_dead_lettered_total Messages that were written to the DLQ, by reason.
# TYPE redeliver_dead_lettered_total counter
redeliver_dead_lettered_total{group="billing",messaging_system="kafka",origin="orders",reason="exhausted"} 1
`, "redeliver_committed_total", "redeliver_dead_lettered_total", "redeliver_abandoned_total", "redeliver_ignored_headers_total")
	for _, c := range []struct {
		metric, labels string
		want           uint64
		most           float64 // the maximum of the sum
	}{
		{"messaging_process_duration_seconds", "retry=false error_type=", 1, 0},
		{"messaging_process_duration_seconds", "retry=false error_type=error", 2, 0},
		{"messaging_process_duration_seconds", "retry=true error_type=", 1, 0},
		{"messaging_process_duration_seconds", "retry=true error_type=error", 2, 0},
		{"redeliver_retry_lateness_seconds", "", 3, 0.001},
	} {
		n, sum := histogram(t, r, c.metric, c.labels)
		if n != c.want || sum > c.most {
			t.Errorf("%s{%s}: %d observations, %g in all; want %d, at most %g", c.metric, c.labels, n, sum, c.want, c.most)
		}
	}
}

// histogram returns the count and the sum of a series. labels are "name=value name=value".
func histogram(t *testing.T, r *prometheus.Registry, metric, labels string) (n uint64, sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != metric {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			has := make(map[string]bool)
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			for want := range strings.FieldsSeq(labels) {
				if !has[want] {
					continue series
				}
			}
			n, sum = n+m.GetHistogram().GetSampleCount(), sum+m.GetHistogram().GetSampleSum()
		}
	}
	return n, sum
}

func TestEventsBecomeMetrics(t *testing.T) {
	s, r := newSink(t)
	for _, e := range append(observedtest.Events(), redeliver.DeadLettered{State: observedtest.Dead()}) {
		s.Event(e)
	}
	same(t, r, `
# HELP redeliver_abandoned_total Attempts that ended early because the session or the process ended. They are not counted, and their messages come back.
# TYPE redeliver_abandoned_total counter
redeliver_abandoned_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_committed_total Messages that were handled and acked.
# TYPE redeliver_committed_total counter
redeliver_committed_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_dead_lettered_total Messages that were written to the DLQ, by reason.
# TYPE redeliver_dead_lettered_total counter
redeliver_dead_lettered_total{group="billing",messaging_system="kafka",origin="orders",reason="exhausted"} 2
# HELP redeliver_discarded_total Messages that were dropped because there is no DLQ, by reason.
# TYPE redeliver_discarded_total counter
redeliver_discarded_total{group="billing",messaging_system="kafka",origin="orders",reason="exhausted"} 1
# HELP redeliver_delayed_published_total Delayed publishes that were due and were written to their topic.
# TYPE redeliver_delayed_published_total counter
redeliver_delayed_published_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_handlers_stuck Handlers that still run although their Timeout is over and their message was settled.
# TYPE redeliver_handlers_stuck gauge
redeliver_handlers_stuck{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_hops_total Messages that moved from one level to a shorter one.
# TYPE redeliver_hops_total counter
redeliver_hops_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_ignored_headers_total Messages whose redeliver headers were ignored, because they are invalid or redeliver did not write them.
# TYPE redeliver_ignored_headers_total counter
redeliver_ignored_headers_total{messaging_system="kafka",topic="orders"} 1
# HELP redeliver_late_answers_total Answers of handlers that came after their message was settled. They are ignored.
# TYPE redeliver_late_answers_total counter
redeliver_late_answers_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_lost_messages_total Messages that disappeared from one of redeliver's topics, or that a share group dropped: an upper bound, or 1 if the number is unknown.
# TYPE redeliver_lost_messages_total counter
redeliver_lost_messages_total{group="billing",messaging_system="kafka",origin="orders"} 8
# HELP redeliver_postponed_total Messages that were set aside without counting an attempt, for example while a circuit breaker is open.
# TYPE redeliver_postponed_total counter
redeliver_postponed_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_publish_failures_total Writes to a level or the DLQ that the broker refused; each is tried again.
# TYPE redeliver_publish_failures_total counter
redeliver_publish_failures_total{group="billing",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_retries_scheduled_total Retries that were written to a level, by level.
# TYPE redeliver_retries_scheduled_total counter
redeliver_retries_scheduled_total{group="billing",level="",messaging_system="kafka",origin="orders"} 1
redeliver_retries_scheduled_total{group="billing",level="1.5s",messaging_system="kafka",origin="orders"} 1
redeliver_retries_scheduled_total{group="billing",level="1m30s",messaging_system="kafka",origin="orders"} 1
redeliver_retries_scheduled_total{group="billing",level="hold",messaging_system="kafka",origin="orders"} 1
# HELP redeliver_subscription_impaired 1 while the subscription has the problem that the label trouble names, otherwise 0.
# TYPE redeliver_subscription_impaired gauge
redeliver_subscription_impaired{group="billing",messaging_system="kafka",origin="orders",trouble="disconnected"} 0
redeliver_subscription_impaired{group="billing",messaging_system="kafka",origin="orders",trouble="intake paused"} 1
`, "redeliver_abandoned_total", "redeliver_committed_total", "redeliver_dead_lettered_total", "redeliver_discarded_total",
		"redeliver_delayed_published_total", "redeliver_handlers_stuck", "redeliver_hops_total", "redeliver_ignored_headers_total",
		"redeliver_late_answers_total", "redeliver_lost_messages_total", "redeliver_postponed_total", "redeliver_publish_failures_total", "redeliver_retries_scheduled_total",
		"redeliver_subscription_impaired")
}

// A replayed message is counted by its outcome. The counter that alerts use exists before, because a counter that
// begins with 1 shows no increase.
func TestReplaysAreCounted(t *testing.T) {
	s, r := newSink(t)
	replays := func(committed, back string) {
		t.Helper()
		same(t, r, `
# HELP redeliver_replays_total Replayed messages, by outcome: committed, or dead_lettered again.
# TYPE redeliver_replays_total counter
redeliver_replays_total{group="billing",messaging_system="kafka",origin="orders",outcome="committed"} `+committed+`
redeliver_replays_total{group="billing",messaging_system="kafka",origin="orders",outcome="dead_lettered"} `+back+`
`, "redeliver_replays_total")
	}
	s.Event(redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: "assigned"})
	replays("0", "0")
	same(t, r, `
# HELP redeliver_dead_lettered_total Messages that were written to the DLQ, by reason.
# TYPE redeliver_dead_lettered_total counter
redeliver_dead_lettered_total{group="billing",messaging_system="kafka",origin="orders",reason="exhausted"} 0
# HELP redeliver_publish_failures_total Writes to a level or the DLQ that the broker refused; each is tried again.
# TYPE redeliver_publish_failures_total counter
redeliver_publish_failures_total{group="billing",messaging_system="kafka",origin="orders"} 0
`, "redeliver_dead_lettered_total", "redeliver_publish_failures_total")
	again := observedtest.State(1)
	again.Replays = 2
	s.Event(redeliver.Committed{State: observedtest.State(1)})
	s.Event(redeliver.DeadLettered{State: observedtest.State(1)})
	s.Event(redeliver.RetryScheduled{State: again}) // the replay has not ended
	replays("0", "0")
	s.Event(redeliver.Committed{State: again})
	s.Event(redeliver.DeadLettered{State: again})
	s.Event(redeliver.DeadLettered{State: again})
	replays("1", "2")
}

// Each problem that begins ends, and an outage continues while it is probed.
func TestProblemsBeginAndEnd(t *testing.T) {
	for _, c := range []struct {
		changes []string
		want    map[string]float64
	}{
		{[]string{"disconnected", "assigned"}, map[string]float64{"disconnected": 0}},
		{[]string{"disconnected", "consuming", "disconnected"}, map[string]float64{"disconnected": 1}},
		{[]string{"intake paused", "intake resumed"}, map[string]float64{"intake paused": 0}},
		{[]string{"throttled", "throttle over"}, map[string]float64{"throttled": 0}},
		{[]string{"blocked"}, map[string]float64{"blocked": 1}},
		{[]string{"blocked", "unblocked"}, map[string]float64{"blocked": 0}},
		{[]string{"outage"}, map[string]float64{"outage": 1, "probing": 0}},
		{[]string{"outage", "probing"}, map[string]float64{"outage": 1, "probing": 1}},
		{[]string{"outage", "probing", "outage"}, map[string]float64{"outage": 1, "probing": 0}},
		{[]string{"outage", "probing", "outage over"}, map[string]float64{"outage": 0, "probing": 0}},
		{[]string{"flood"}, map[string]float64{"flood": 1}},
		{[]string{"flood", "flood over"}, map[string]float64{"flood": 0}},
		{[]string{"paused", "group paused", "resumed"}, map[string]float64{"paused": 0, "group paused": 1}},
		{[]string{"group paused", "group resumed"}, map[string]float64{"group paused": 0}},
		{[]string{"commands are not read", "commands are read"}, map[string]float64{"commands are not read": 0}},
		{[]string{"dedup store lost", "dedup store recovered"}, map[string]float64{"dedup store lost": 0}},
		{[]string{"a change of a third party's adapter, with an id in it"}, map[string]float64{}},
	} {
		s, r := newSink(t)
		for _, change := range c.changes {
			s.Event(redeliver.SubscriptionChanged{Origin: "orders", Group: "billing", Change: redeliver.Change(change)})
		}
		all, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]float64)
		for _, family := range all {
			if family.GetName() != "redeliver_subscription_impaired" {
				continue
			}
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "trouble" {
						got[l.GetValue()] = m.GetGauge().GetValue()
					}
				}
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("after %q: %v, want %v", c.changes, got, c.want)
		}
	}
}

func TestInvalidConfigsAreRefused(t *testing.T) {
	if _, err := prom.New(prom.Config{}); err == nil || !strings.Contains(err.Error(), "System") {
		t.Errorf("without a system: %v", err)
	}
	r := prometheus.NewRegistry()
	if _, err := prom.New(prom.Config{System: "kafka", Registerer: r}); err != nil {
		t.Fatal(err)
	}
	if _, err := prom.New(prom.Config{System: "kafka", Registerer: r}); err == nil {
		t.Error("a second sink of one system was registered")
	}
	if _, err := prom.New(prom.Config{System: "rabbitmq", Registerer: r}); err != nil {
		t.Errorf("a sink of another system: %v", err)
	}
}

// The path of every message allocates nothing after the first message of its subscription.
func TestASuccessAllocatesNothing(t *testing.T) {
	s, _ := newSink(t)
	var attempted, committed redeliver.Event = redeliver.Attempted{State: observedtest.State(0), Took: time.Millisecond}, redeliver.Committed{State: observedtest.State(0)}
	s.Event(attempted)
	if n := testing.AllocsPerRun(100, func() { s.Event(attempted); s.Event(committed) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSuccess(b *testing.B) {
	s, err := prom.New(prom.Config{System: "kafka", Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Event(redeliver.Attempted{State: observedtest.State(0), Took: time.Millisecond})
		s.Event(redeliver.Committed{State: observedtest.State(0)})
	}
}
