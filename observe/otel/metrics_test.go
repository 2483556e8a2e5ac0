package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/observed/observedtest"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/redelivertest"
)

func newSink(t *testing.T) (*otel.Sink, *sdk.ManualReader) {
	t.Helper()
	r := sdk.NewManualReader()
	s, err := otel.New(otel.Config{System: "kafka", MeterProvider: sdk.NewMeterProvider(sdk.WithReader(r))})
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// collected returns the metrics that a reader collects: a line for each series, "name{attributes} value", sorted. The
// value of a histogram is its count and sum. Attributes that all series share are omitted.
func collected(t *testing.T, r *sdk.ManualReader) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	line := func(name string, set attribute.Set, v string) {
		var attrs []string
		for _, kv := range set.ToSlice() {
			if kv.Key == "messaging.system" && kv.Value.String() == "kafka" {
				continue
			}
			attrs = append(attrs, string(kv.Key)+"="+kv.Value.String())
		}
		lines = append(lines, name+"{"+strings.ReplaceAll(strings.Join(attrs, " "),
			"messaging.consumer.group.name=billing messaging.destination.name=orders", "us")+"} "+v)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					line(m.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					line(m.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					line(m.Name, p.Attributes, fmt.Sprint(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					line(m.Name, p.Attributes, fmt.Sprintf("%d %g", p.Count, p.Sum))
				}
			default:
				t.Fatalf("%s is a %T", m.Name, m.Data)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// wantCollected fails the test if a reader does not collect exactly these lines.
func wantCollected(t *testing.T, r *sdk.ManualReader, want string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(want), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	if got := collected(t, r); !slices.Equal(got, lines) {
		t.Errorf("collected\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
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
	wantCollected(t, r, `
		messaging.client.consumed.messages{us messaging.operation.name=process} 6
		messaging.process.duration{error.type=error us messaging.operation.name=process redeliver.retry=false} 2 0
		messaging.process.duration{error.type=error us messaging.operation.name=process redeliver.retry=true} 2 0
		messaging.process.duration{us messaging.operation.name=process redeliver.retry=false} 1 0
		messaging.process.duration{us messaging.operation.name=process redeliver.retry=true} 1 0
		redeliver.committed{us} 2
		redeliver.dead_lettered{us redeliver.reason=exhausted} 1
		redeliver.retries_scheduled{us redeliver.level=10s} 3
		redeliver.retry_lateness{us} 3 0`)
}

func TestEventsBecomeMetrics(t *testing.T) {
	s, r := newSink(t)
	again, back := observedtest.State(0), observedtest.Dead()
	again.Replays, back.Replays = 1, 1
	for _, e := range append(observedtest.Events(), redeliver.Committed{State: again}, redeliver.DeadLettered{State: back}) {
		s.Event(e)
	}
	wantCollected(t, r, `
		messaging.client.consumed.messages{us messaging.operation.name=process} 4
		messaging.process.duration{error.type=error us messaging.operation.name=process redeliver.retry=false} 1 1
		messaging.process.duration{error.type=panic us messaging.operation.name=process redeliver.retry=false} 1 1
		messaging.process.duration{error.type=timeout us messaging.operation.name=process redeliver.retry=true} 1 1
		messaging.process.duration{us messaging.operation.name=process redeliver.retry=false} 1 0.02
		messaging.process.duration{us messaging.operation.name=process redeliver.retry=true} 2 1.02
		redeliver.abandoned{us} 1
		redeliver.committed{us} 2
		redeliver.dead_lettered{us redeliver.reason=exhausted} 2
		redeliver.delayed_published{us} 1
		redeliver.discarded{us redeliver.reason=exhausted} 1
		redeliver.handlers_stuck{us} 1
		redeliver.hops{us} 1
		redeliver.ignored_headers{messaging.destination.name=orders} 1
		redeliver.late_answers{us} 1
		redeliver.lost_messages{us} 8
		redeliver.postponed{us} 1
		redeliver.publish_failures{us} 1
		redeliver.replays{us redeliver.outcome=committed} 1
		redeliver.replays{us redeliver.outcome=dead_lettered} 1
		redeliver.retries_scheduled{us redeliver.level=1.5s} 1
		redeliver.retries_scheduled{us redeliver.level=1m30s} 1
		redeliver.retries_scheduled{us redeliver.level=hold} 1
		redeliver.retries_scheduled{us redeliver.level=} 1
		redeliver.retry_lateness{us} 1 2
		redeliver.subscription_impaired{us redeliver.trouble=disconnected} 0
		redeliver.subscription_impaired{us redeliver.trouble=intake paused} 1`)
}

// aged is a DLQ that reports its age and its retention.
type aged struct{ deadletter.Queue }

func (aged) Oldest(context.Context) (time.Time, bool, error) {
	return time.Now().Add(-minute), true, nil
}
func (aged) Retention(context.Context) (time.Duration, error) { return time.Hour, nil }

func TestDLQsAreWatched(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		orders := c.Handle("orders", func(*message.Message) error { return errDeclined })
		for _, id := range []string{"1", "2", "3"} {
			b.Publish("orders", message.NewMessage(id, nil))
			orders.Outcome(id)
		}
		q := aged{orders.DeadLetterQueue()}
		claim, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"})
		if err == nil {
			err = errors.Join(claim.Save(t.Context(), deadletter.Task{ID: "t", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused, Counts: deadletter.Counts{Replayed: 4}}),
				claim.Save(t.Context(), deadletter.Task{ID: "u", Kind: deadletter.KindReplay, Status: deadletter.StatusDone, Counts: deadletter.Counts{Replayed: 3}}), claim.Release(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := sdk.NewManualReader()
		provider := sdk.NewMeterProvider(sdk.WithReader(r))
		watch, err := otel.WatchDLQs(otel.DLQConfig{System: "kafka", MeterProvider: provider, Queues: []deadletter.Queue{q, observedtest.Silent{Queue: q, Name: "away"}}, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		wantCollected(t, r, `
			redeliver.dlq_messages{us redeliver.dlq=orders.billing.dlq redeliver.exact=true} 3
			redeliver.dlq_oldest_age{us redeliver.dlq=orders.billing.dlq} 60
			redeliver.dlq_open_tasks{us redeliver.dlq=orders.billing.dlq redeliver.task.kind=replay redeliver.task.status=paused} 1
			redeliver.dlq_retention{us redeliver.dlq=orders.billing.dlq} 3600
			redeliver.dlq_task_messages{us redeliver.dlq=orders.billing.dlq redeliver.task.kind=replay redeliver.task.outcome=replayed} 7
			redeliver.dlq_up{us redeliver.dlq=away} 0
			redeliver.dlq_up{us redeliver.dlq=orders.billing.dlq} 1`)
		if err := watch.Unregister(); err != nil {
			t.Fatal(err)
		}
		if got := collected(t, r); len(got) > 0 {
			t.Errorf("it is still watched: %q", got)
		}
		if _, err := otel.WatchDLQs(otel.DLQConfig{System: "kafka", Queues: []deadletter.Queue{q, q}}); err == nil {
			t.Error("one DLQ is watched twice")
		}
	})
	if _, err := otel.WatchDLQs(otel.DLQConfig{System: "kafka"}); err == nil {
		t.Error("without queues there is nothing to watch")
	}
	if _, err := otel.New(otel.Config{}); err == nil {
		t.Error("a sink without a system was accepted")
	}
}
