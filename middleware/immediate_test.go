package middleware_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

// Each immediate retry gets the message as it was published, its own attempt number, and a context with the Router's
// values. The context of the previous attempt has ended.
func TestAnImmediateRetryGetsThePublishedMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var attempts []int
		var before []*message.Message
		var contexts []context.Context
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: 3, Immediate: 2, Backoff: redeliver.Fixed(minute)}}).
			Handle("orders", func(msg *message.Message) error {
				ctx := msg.Context()
				st, ok := redeliver.FromContext(ctx)
				attempts = append(attempts, st.Attempt())
				if !ok || st.ID != "1" || st.Group != "billing" || ctx.Err() != nil || message.HandlerNameFromCtx(ctx) != "orders" {
					t.Errorf("attempt %d has the state %+v, %v", len(attempts), st, ctx.Err())
				}
				if len(attempts) > 1 && st.Error != errHandler.Error() {
					t.Errorf("attempt %d does not have the previous error: %+v", len(attempts), st)
				}
				if !msg.Equals(published("1")) || slices.Contains(before, msg) {
					t.Errorf("attempt %d got changes of another attempt: %+v", len(attempts), msg)
				}
				for _, old := range contexts {
					if old.Err() == nil {
						t.Errorf("attempt %d runs, and the context of an earlier one has not ended", len(attempts))
					}
				}
				before, contexts = append(before, msg), append(contexts, ctx)
				copy(msg.Payload, "ruined!")
				msg.Metadata.Set("tenant", "nobody")
				msg.UUID = "another"
				msg.SetContext(t.Context())
				return errHandler
			})
		b.Publish("orders", published("1"))
		got := orders.Outcome("1")
		if !slices.Equal(attempts, []int{1, 2, 3, 4}) || len(got.Waits) != 1 || got.Waits[0].State.Attempts != 3 || got.Took != minute {
			t.Errorf("attempts %v, %s", attempts, got)
		}
		for i, a := range got.Attempts {
			if a.State.Attempt() != i+1 || !errors.Is(a.Err, errHandler) {
				t.Errorf("event %d: %+v", i, a)
			}
		}
		if dead := orders.DeadLetters(); len(dead) != 1 || !dead[0].Message.Equals(published("1")) {
			t.Errorf("dead letters %+v", dead)
		}
	})
}

// Policy.Invalid is called before every attempt, with the message as it was published. A message that it refuses at the
// first call has had no attempt. If it panics, the message is refused.
func TestInvalidIsAskedBeforeEveryTry(t *testing.T) {
	for _, c := range []struct {
		refusedAt int
		panics    bool
		asked     []int
		text      string
	}{{1, false, []int{1}, "the bank is closed"}, {1, true, []int{1}, "panic: boo"}, {3, false, []int{1, 2, 3}, "the bank is closed"}} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			var asked []int
			runs := 0
			invalid := func(m redeliver.Message) error {
				asked = append(asked, m.State.Attempt())
				if m.State.ID != "1" || m.Headers.Get("tenant") != "acme" || string(m.Body) != "payload" {
					t.Errorf("Invalid got %+v", m)
				}
				switch {
				case m.State.Attempt() < c.refusedAt:
					return nil
				case c.panics:
					panic("boo")
				default:
					return errHandler
				}
			}
			orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: 3, Immediate: 3, Invalid: invalid}}).
				Handle("orders", func(msg *message.Message) error {
					runs++
					msg.Metadata.Set("tenant", "nobody")
					copy(msg.Payload, "ruined!")
					return errHandler
				})
			b.Publish("orders", published("1"))
			got := orders.Outcome("1")
			if !slices.Equal(asked, c.asked) || runs != c.refusedAt-1 || len(got.Attempts) != runs {
				t.Errorf("asked %v, %d runs, %s", asked, runs, got)
			}
			if st := got.State; st.Reason != redeliver.ReasonInvalidated || st.Attempts != runs || !strings.HasPrefix(st.Error, c.text) {
				t.Errorf("dead-lettered as %+v", st)
			}
		})
	}
}

// An immediate retry of a record that cannot be decoded again must not run the handler without a message and succeed.
func TestImmediateTryThatCannotBeDecodedGoesToTheDLQ(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		decoded, runs := 0, 0
		orders := b.Open(redelivertest.Config{
			Group: "billing", Policy: redeliver.Policy{MaxRetries: 3, Immediate: 2},
			Decode: func(*message.Message) error {
				if decoded++; decoded > 1 {
					return errors.New("schema registry is unreachable")
				}
				return nil
			},
		}).Handle("orders", func(*message.Message) error { runs++; return errHandler })
		b.Publish("orders", published("1"))
		if got := orders.Outcome("1"); runs != 1 || got.State.Reason != redeliver.ReasonUndecodable || got.State.Attempts != 1 {
			t.Errorf("%d runs, %s", runs, got)
		}
	})
}

// After a timeout there is no immediate retry: the first handler may still run.
func TestTimeoutIsNotRetriedInPlace(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Timeout: second, MaxRetries: 1, Immediate: 1}}).
			Handle("orders", func(msg *message.Message) error {
				<-msg.Context().Done()
				<-time.After(second / 2)
				return nil // too late
			})
		b.Publish("orders", published("1"))
		if got := orders.Outcome("1"); len(got.Attempts) != 2 || len(got.Waits) != 1 || got.Waits[0].Delay != 0 || got.Waits[0].State.Due.Sub(got.Attempts[0].Start) != second {
			t.Error(got)
		}
	})
}
