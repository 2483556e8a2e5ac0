package otel_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/redelivertest"
)

// batchOf returns the spans of batch functions, and the spans of messages that had begun before the engine knew that
// their handler gathers.
func batchOf(all []span) (batches, gathered, others []span) {
	for _, s := range all {
		switch {
		case s.attribute("messaging.batch.message_count") != "":
			batches = append(batches, s)
		case s.attribute("redeliver.outcome") == "gathered":
			gathered = append(gathered, s)
		default:
			others = append(others, s)
		}
	}
	return batches, gathered, others
}

// A batch function has one span. For each message it has a link to the span that published it and one to the batch in
// which it failed before.
func TestABatchIsLinkedToEachOfItsMessages(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "search", Tracer: tr, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}})
		var seen []string
		docs := c.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 3, Timeout: time.Second}, func(ctx context.Context, mb *middleware.MessageBatch) error {
			seen = append(seen, current(ctx))
			for _, m := range mb.Messages {
				if m.Record.UUID == "d-2" {
					m.Answer(errDeclined)
				}
			}
			return nil
		})))
		b.Publish("documents", traced("d-1"), traced("d-2"), traced("d-3"))
		if got := docs.Outcome("d-2"); got.State.Reason != redeliver.ReasonExhausted {
			t.Fatal(got)
		}
		published := "published=" + publisherID
		batches, gathered, others := batchOf(r.spans(0))
		if len(batches) != 2 || len(gathered) < 1 || len(gathered) > 3 || len(others) != 1 {
			t.Fatalf("%d batches, %d messages that were gathered first, %d others", len(batches), len(gathered), len(others))
		}
		first, second, dead := batches[0], batches[1], others[0]
		r.wantSpan(first, "process documents", "answered", strings.Join([]string{published, published, published}, " "), codes.Unset)
		r.wantSpan(second, "process documents", "answered", "previous="+first.id()+" "+published, codes.Unset)
		r.wantSpan(dead, "dead_letter documents.search.dlq", "", published, codes.Error)
		if dead.Parent().SpanID() != second.SpanContext().SpanID() {
			t.Errorf("the span of the dead letter is a child of %s, want %s", dead.Parent().SpanID(), second.id())
		}
		if !slices.Equal(seen, []string{first.id(), second.id()}) {
			t.Errorf("the function got the spans %q", seen)
		}
		if first.attribute("messaging.batch.message_count") != "3" || first.SpanKind() != trace.SpanKindConsumer || first.Parent().IsValid() || first.attribute("messaging.message.id") != "" {
			t.Errorf("%s, a child of %s, has %v", first, first.Parent().SpanID(), first.Attributes())
		}
		var ids []string
		for _, l := range first.Links() {
			ids = append(ids, value(l.Attributes, "messaging.message.id"))
			if value(l.Attributes, "redeliver.attempt") != "1" || value(l.Attributes, "messaging.kafka.offset") == "" {
				t.Errorf("a link has %v", l.Attributes)
			}
		}
		if slices.Sort(ids); !slices.Equal(ids, []string{"d-1", "d-2", "d-3"}) {
			t.Errorf("the batch is linked to %q", ids)
		}
	})
}

// The span of a batch function that never returns ends when the function is stuck. Its messages are then handled as
// others.
func TestTheSpanOfAStuckBatchEnds(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "search", Tracer: tr, Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries, Timeout: minute}})
		docs := c.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 1}, func(context.Context, *middleware.MessageBatch) error {
			<-time.After(time.Hour)
			return nil
		})))
		b.Publish("documents", traced("d-1"))
		if got := docs.Outcome("d-1"); got.State.Reason != redeliver.ReasonTimeout {
			t.Fatal(got)
		}
		<-time.After(2 * time.Hour)
		batches, _, others := batchOf(r.spans(3)) // including one that was gathered first
		if len(batches) != 1 || len(others) != 1 {
			t.Fatalf("%d batches, %d others", len(batches), len(others))
		}
		if took := batches[0].EndTime().Sub(batches[0].StartTime()); took != minute+time.Second {
			t.Errorf("the span took %s", took)
		}
		r.wantSpan(others[0], "dead_letter documents.search.dlq", "", "published="+publisherID, codes.Error)
	})
}

// A batch that panics is no error, because its messages are retried.
func TestABatchThatPanicsIsRetried(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "search", Tracer: tr, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}})
		calls := 0
		docs := c.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 1}, func(context.Context, *middleware.MessageBatch) error {
			if calls++; calls == 1 {
				panic("no index")
			}
			return nil
		})))
		b.Publish("documents", traced("d-1"))
		if got := docs.Outcome("d-1"); !got.Committed {
			t.Fatal(got)
		}
		batches, _, others := batchOf(r.spans(3)) // including one that was gathered first
		if len(batches) != 2 || len(others) != 0 {
			t.Fatalf("%d batches, %d others", len(batches), len(others))
		}
		r.wantSpan(batches[0], "process documents", "answered", "published="+publisherID, codes.Unset)
		r.wantSpan(batches[1], "process documents", "answered", "previous="+batches[0].id()+" published="+publisherID, codes.Unset)
	})
}

// A received message has a span until it is acked, or its invisible time is over.
func TestAReceivedMessageHasASpan(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "billing", Tracer: tr})
		rec, err := middleware.NewReceiver(t.Context(), c.Subscriber(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		b.Publish("orders", traced("o-1"))
		var seen []string
		for _, ack := range []bool{false, true} {
			got, err := rec.Receive(t.Context(), 1, minute)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, current(got[0].Message.Context()))
			if ack {
				err = got[0].Ack()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		b.Wait()
		spans := r.spans(2)
		r.wantSpan(spans[0], "process orders", "retried", "published="+publisherID, codes.Unset)
		r.wantSpan(spans[1], "process orders", "succeeded", "previous="+spans[0].id()+" published="+publisherID, codes.Unset)
		if took := spans[0].EndTime().Sub(spans[0].StartTime()); took != minute {
			t.Errorf("the first lease took %s", took)
		}
		if !slices.Equal(seen, []string{spans[0].id(), spans[1].id()}) {
			t.Errorf("the receiver got the spans %q", seen)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
