package otel_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/observe/otel"
	"github.com/redeliver/redeliver/redelivertest"
)

// Each attempt is the root of its own trace, linked to the previous attempt and to the span that published the message.
// An attempt that will be retried is no error, and a wait has no span.
func TestAttemptsAreLinkedToTheOneBeforeAndToThePublisher(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "billing", Tracer: tr, Policy: redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(95 * time.Second)}})
		var seen []string
		handler := fails(2)
		orders := c.Handle("orders", func(msg *message.Message) error {
			seen = append(seen, current(msg.Context()))
			if name := msg.Metadata.Get("traceparent"); name != publisher {
				t.Errorf("the handler got the traceparent %q, want the publisher's", name)
			}
			return handler(msg)
		})
		b.Publish("orders", traced("o-1"))
		if got := orders.Outcome("o-1"); !got.Committed || len(got.Attempts) != 3 {
			t.Fatal(got)
		}
		spans := r.spans(3)
		published := "published=" + publisherID
		r.wantSpan(spans[0], "process orders", "retried", published, codes.Unset)
		r.wantSpan(spans[1], "process orders", "retried", "previous="+spans[0].id()+" "+published, codes.Unset)
		r.wantSpan(spans[2], "process orders", "succeeded", "previous="+spans[1].id()+" "+published, codes.Unset)
		traces := map[string]bool{}
		for i, s := range spans {
			traces[s.trace()] = true
			if s.id() != seen[i] {
				t.Errorf("the handler of attempt %d got the span %s, want %s", i+1, seen[i], s.id())
			}
			if s.Parent().IsValid() || s.SpanKind() != trace.SpanKindConsumer {
				t.Errorf("attempt %d is a child of %s, of kind %s", i+1, s.Parent().SpanID(), s.SpanKind())
			}
			for key, want := range map[string]string{
				"messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
				"messaging.destination.name": "orders", "messaging.consumer.group.name": "billing", "messaging.message.id": "o-1",
				"messaging.destination.partition.id": "0", "messaging.kafka.offset": "0", "error.type": "",
				"redeliver.attempt": string(rune('1' + i)),
			} {
				if got := s.attribute(key); got != want {
					t.Errorf("attempt %d has %s=%q, want %q", i+1, key, got, want)
				}
			}
		}
		if len(traces) != 3 {
			t.Errorf("three attempts are in %d traces", len(traces))
		}
		if spans[0].attribute("redeliver.error") != errDeclined.Error() || spans[0].attribute("redeliver.due") != "2000-01-01T00:01:35Z" {
			t.Errorf("a failed attempt has the status %v", spans[0].Attributes())
		}
	})
}

// Only a dead-lettered message has the status Error: on the span of its attempt, and on that of the write to the DLQ,
// which is a child of it. A replay is linked to the failed attempt.
func TestOnlyADeadLetterIsAnErrorAndAReplayIsLinkedToIt(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "billing", Tracer: tr, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}})
		orders := c.Handle("orders", fails(2))
		b.Publish("orders", traced("o-1"))
		if got := orders.Outcome("o-1"); got.State.Reason != redeliver.ReasonExhausted {
			t.Fatal(got)
		}
		q := orders.DeadLetterQueue()
		spans, published := r.spans(3), "published="+publisherID
		last, dead := spans[1], spans[2]
		if last.Name() != "process orders" { // they begin at the same time
			last, dead = dead, last
		}
		r.wantSpan(spans[0], "process orders", "retried", published, codes.Unset)
		r.wantSpan(last, "process orders", "dead-lettered", "previous="+spans[0].id()+" "+published, codes.Error)
		r.wantSpan(dead, "dead_letter "+q.Info().DLQ, "", published, codes.Error)
		if dead.Parent().SpanID() != last.SpanContext().SpanID() || dead.SpanKind() != trace.SpanKindProducer {
			t.Errorf("the write to the DLQ is a child of %s, of kind %s; want %s", dead.Parent().SpanID(), dead.SpanKind(), last.id())
		}
		for _, s := range []span{last, dead} {
			if s.attribute("redeliver.reason") != "exhausted" || s.attribute("error.type") != "*errors.errorString" || s.Status().Description != errDeclined.Error() {
				t.Errorf("%s says %v", s, s.Attributes())
			}
		}
		if dead.attribute("messaging.destination.name") != q.Info().DLQ || dead.attribute("redeliver.attempts") != "2" || dead.attribute("messaging.message.id") != "o-1" {
			t.Errorf("%s says %v", dead, dead.Attributes())
		}

		if _, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "the bank is back"}); err != nil {
			t.Fatal(err)
		}
		b.Wait()
		again := r.spans(4)[3]
		r.wantSpan(again, "process orders", "succeeded", "previous="+last.id()+" "+published, codes.Unset)
		if again.attribute("redeliver.attempt") != "1" || again.attribute("redeliver.replays") != "1" {
			t.Errorf("a replay has %v", again.Attributes())
		}
	})
}

// The span of a write to the DLQ has the first error, if the last one is another.
func TestADeadLetterHasItsFirstError(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		c := b.Open(redelivertest.Config{Group: "billing", Tracer: tr, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}})
		orders := c.Handle("orders", func(msg *message.Message) error {
			st, _ := redeliver.FromContext(msg.Context())
			if msg.UUID == "o-2" && st.Attempts == 0 {
				return errors.New("timed out")
			}
			return errDeclined
		})
		for _, id := range []string{"o-1", "o-2"} {
			b.Publish("orders", traced(id))
			orders.Outcome(id)
		}
		got := make(map[string]string)
		for _, s := range r.spans(6) {
			if s.Name() == "dead_letter "+orders.DeadLetterQueue().Info().DLQ {
				got[s.attribute("messaging.message.id")] = s.attribute("redeliver.first_error")
			}
		}
		if want := map[string]string{"o-1": "", "o-2": "timed out"}; !maps.Equal(got, want) {
			t.Errorf("the first errors are %q, want %q", got, want)
		}
	})
}

// A handler has one span however it ends, and the span ends when the handler can no longer settle the message.
func TestAHandlerHasOneSpanHoweverItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		policy  redeliver.Policy
		handler func(t *testing.T, msg *message.Message) error
		want    string // outcomes and errors of all spans
		took    time.Duration
	}{
		"a panic is the last attempt's": {handler: func(*testing.T, *message.Message) error { panic("no card") },
			want: "dead-lettered Error *redeliver.PanicError"},
		"Goexit is a panic": {handler: func(_ *testing.T, _ *message.Message) error { return exit() },
			want: "dead-lettered Error *redeliver.PanicError"},
		"a handler that ignores its timeout": {policy: redeliver.Policy{Timeout: minute},
			handler: func(*testing.T, *message.Message) error { <-time.After(10 * minute); return nil },
			want:    "dead-lettered Error *redeliver.TimeoutError", took: minute},
		"a handler that returns at its timeout": {policy: redeliver.Policy{Timeout: minute},
			handler: func(_ *testing.T, msg *message.Message) error { <-msg.Context().Done(); return msg.Context().Err() },
			want:    "dead-lettered Error *redeliver.TimeoutError", took: minute},
		"a permanent failure": {policy: redeliver.Policy{MaxRetries: 3},
			handler: func(*testing.T, *message.Message) error { return redeliver.Permanent(errDeclined) },
			want:    "dead-lettered Error *errors.errorString"},
		"an immediate retry": {policy: redeliver.Policy{MaxRetries: 1, Immediate: 1}, handler: twice(errDeclined, nil),
			want: "retried Unset , succeeded Unset "},
		"a postponed message": {policy: redeliver.Policy{MaxRetries: 1}, handler: twice(redeliver.Postpone(errDeclined), nil),
			want: "postponed Unset , succeeded Unset "},
		"a message that waits in place": {policy: redeliver.Policy{MaxRetries: 1, Order: redeliver.OrderBlocking}, handler: twice(errDeclined, nil),
			want: "retried Unset , succeeded Unset "},
		"a message that its handler acked": {policy: redeliver.Policy{MaxRetries: 1},
			handler: func(_ *testing.T, msg *message.Message) error { msg.Ack(); return errDeclined },
			want:    "settled Unset "},
		"a success": {handler: func(*testing.T, *message.Message) error { return nil }, want: "succeeded Unset "},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				tr, r := newTracer(t, otel.TracerConfig{})
				if c.policy.MaxRetries == 0 {
					c.policy.MaxRetries = redeliver.NoRetries
				}
				client := b.Open(redelivertest.Config{Group: "billing", Tracer: tr, Policy: c.policy})
				orders := client.Handle("orders", func(msg *message.Message) error { return c.handler(t, msg) })
				b.Publish("orders", traced("o-1"))
				orders.Outcome("o-1")
				<-time.After(time.Hour) // a late result does not end a span
				dead := strings.Count(c.want, "dead-lettered")
				var got []string
				var before span
				for _, s := range r.spans(strings.Count(c.want, ",") + 1 + dead) {
					if strings.HasPrefix(s.Name(), "dead_letter") {
						continue
					}
					got = append(got, s.attribute("redeliver.outcome")+" "+s.Status().Code.String()+" "+s.attribute("error.type"))
					if before.ReadOnlySpan != nil && !strings.Contains(s.links(), "previous="+before.id()) {
						t.Errorf("%s is not linked to %s", s, before)
					}
					if took := s.EndTime().Sub(s.StartTime()); c.took > 0 && took != c.took {
						t.Errorf("the span took %s, want %s", took, c.took)
					}
					before = s
				}
				if strings.Join(got, ", ") != c.want {
					t.Errorf("spans ended as %q, want %q", got, c.want)
				}
			})
		})
	}
}

// twice returns a handler with the results of the first and the second attempt.
func twice(first, second error) func(*testing.T, *message.Message) error {
	return func(_ *testing.T, msg *message.Message) error {
		// A postponed message has no previous attempt.
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() == 1 && st.PostponedSince.IsZero() {
			return first
		}
		return second
	}
}

// An attempt that the end of its process interrupts is no error, and the message comes back.
func TestAnAbandonedAttemptIsNoError(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		cfg := redelivertest.Config{Group: "billing", Tracer: tr}
		c := b.Open(cfg)
		c.Handle("orders", func(msg *message.Message) error { <-msg.Context().Done(); return msg.Context().Err() })
		b.Publish("orders", traced("o-1"))
		<-time.After(time.Second)
		c.Kill()
		b.Wait()
		orders := b.Open(cfg).Handle("orders", func(*message.Message) error { return nil })
		if got := orders.Outcome("o-1"); !got.Committed {
			t.Fatal(got)
		}
		spans := r.spans(2)
		r.wantSpan(spans[0], "process orders", "abandoned", "published="+publisherID, codes.Unset)
		r.wantSpan(spans[1], "process orders", "succeeded", "published="+publisherID, codes.Unset)
	})
}

// A message that must not run any more has no attempt, and its write to the DLQ is the root of a trace.
func TestADeadLetterWithoutAnAttemptHasItsOwnTrace(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		p := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(minute)}
		p.Invalid = func(m redeliver.Message) error {
			if m.State.Attempt() == 2 {
				return errors.New("the order was cancelled")
			}
			return nil
		}
		orders := b.Open(redelivertest.Config{Group: "billing", Tracer: tr, Policy: p}).Handle("orders", fails(9))
		b.Publish("orders", traced("o-1"))
		if got := orders.Outcome("o-1"); got.State.Reason != redeliver.ReasonInvalidated {
			t.Fatal(got)
		}
		spans := r.spans(2)
		r.wantSpan(spans[0], "process orders", "retried", "published="+publisherID, codes.Unset)
		r.wantSpan(spans[1], "dead_letter orders.billing.dlq", "", "previous="+spans[0].id()+" published="+publisherID, codes.Error)
		if spans[1].Parent().IsValid() || spans[1].attribute("redeliver.reason") != "invalidated" {
			t.Errorf("%s is a child of %s and says %v", spans[1], spans[1].Parent().SpanID(), spans[1].Attributes())
		}
	})
}

// With Parent all attempts are in the publisher's trace, and the links stay.
func TestParentMakesAttemptsChildrenOfThePublisher(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{Parent: true, RetriesAreErrors: true})
		fail := fails(1)
		orders := b.Open(redelivertest.Config{Group: "billing", Tracer: tr}).Handle("orders", func(msg *message.Message) error {
			if msg.UUID == "o-1" {
				return fail(msg)
			}
			return nil
		})
		b.Publish("orders", traced("o-1"), message.NewMessage("o-2", nil))
		orders.Outcome("o-1")
		var of1 []span
		for _, s := range r.spans(3) {
			if s.attribute("messaging.message.id") == "o-1" {
				of1 = append(of1, s)
			} else if s.Parent().IsValid() || s.links() != "" {
				t.Errorf("%s, a child of %s, was not published", s, s.Parent().SpanID())
			}
		}
		if len(of1) != 2 {
			t.Fatalf("%d attempts", len(of1))
		}
		r.wantSpan(of1[0], "process orders", "retried", "", codes.Error)
		r.wantSpan(of1[1], "process orders", "succeeded", "previous="+of1[0].id(), codes.Unset)
		for _, s := range of1 {
			if s.Parent().SpanID().String() != publisherID || s.trace() != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("%s is a child of %s", s, s.Parent().SpanID())
			}
		}
	})
}

// Without a provider there is no span, and no header.
func TestWithoutAProviderThereIsNoTrace(t *testing.T) {
	tr, err := otel.NewTracer(otel.TracerConfig{System: "kafka"})
	if err != nil {
		t.Fatal(err)
	}
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := b.Open(redelivertest.Config{Group: "billing", Tracer: tr}).Handle("orders", fails(1))
		b.Publish("orders", traced("o-1"))
		if got := orders.Outcome("o-1"); !got.Committed || len(got.Attempts) != 2 || got.Attempts[1].State.Trace != "" {
			t.Errorf("the second attempt has the trace %q: %s", got.State.Trace, got)
		}
	})
	if _, err := otel.NewTracer(otel.TracerConfig{}); err == nil {
		t.Error("a tracer without a system was accepted")
	}
}

// A recorded span is linked to a publisher's span that was not sampled, and is a root. The handler gets the baggage.
func TestAPublisherThatWasNotSampledIsLinkedToo(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		tr, r := newTracer(t, otel.TracerConfig{})
		var seen []string
		orders := b.Open(redelivertest.Config{Group: "billing", Tracer: tr}).Handle("orders", func(msg *message.Message) error {
			seen = append(seen, baggage.FromContext(msg.Context()).Member("tenant").Value())
			return nil
		})
		for _, carried := range []string{"", "tenant=acme"} {
			msg := traced("o-" + carried)
			msg.Metadata.Set("traceparent", strings.TrimSuffix(publisher, "1")+"0")
			msg.Metadata.Set("baggage", carried)
			b.Publish("orders", msg)
			orders.Outcome("o-" + carried)
		}
		for _, s := range r.spans(2) {
			r.wantSpan(s, "process orders", "succeeded", "published="+publisherID, codes.Unset)
			if s.Parent().IsValid() || s.attribute("messaging.message.id") == "" || s.attribute("messaging.kafka.offset") == "" || s.attribute("redeliver.attempt") != "1" {
				t.Errorf("%s is a child of %s and says %v", s, s.Parent().SpanID(), s.Attributes())
			}
		}
		if !slices.Equal(seen, []string{"", "acme"}) {
			t.Errorf("the handler got the baggage %q", seen)
		}
	})
}
