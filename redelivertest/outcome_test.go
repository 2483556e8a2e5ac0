package redelivertest_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

func TestOutcomePrintsEachStep(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := open(b, quick).Handle("orders", declines)
		b.Publish("orders", msg("o-1"))
		got := orders.Outcome("o-1")
		if got.Committed || got.State.Reason != redeliver.ReasonExhausted || len(got.Attempts) != 4 || len(got.Waits) != 3 || got.Took != 7*time.Second {
			t.Errorf("%+v", got)
		}
		for i, at := range []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second} {
			a := got.Attempts[i]
			if a.State.Attempt() != i+1 || a.Start.Sub(got.Attempts[0].Start) != at || !errors.Is(a.Err, errDown) || a.Took != 0 {
				t.Errorf("attempt %d: %+v", i+1, a)
			}
		}
		want := `o-1
       +0s  attempt 1 failed: bank is down
       +0s  waits 1s on orders.billing.retry.1s
       +1s  attempt 2 failed: bank is down
       +1s  waits 2s on orders.billing.retry.2s
       +3s  attempt 3 failed: bank is down
       +3s  waits 4s on orders.billing.retry.4s
       +7s  attempt 4 failed: bank is down
       +7s  dead in orders.billing.dlq: exhausted`
		if got.String() != want {
			t.Errorf("the log is\n%s\nwant\n%s", got, want)
		}
		if b.Elapsed() != 7*time.Second {
			t.Errorf("%s have passed", b.Elapsed())
		}
	})
}

func TestDeadLettersAndWaitingShowTheMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := open(b, quick).Handle("orders", func(msg *message.Message) error {
			msg.Payload[0], msg.Metadata["tenant"] = '!', "changed"
			if redelivertest.Key(msg.Context()) != "card 4711" {
				t.Errorf("the handler got the key %q", redelivertest.Key(msg.Context()))
			}
			return errDown
		})
		m := msg("o-1")
		m.Metadata.Set("tenant", "acme")
		redelivertest.SetKey(m, "card 4711")
		b.Publish("orders", m)
		began := time.Now()
		check := func(s redelivertest.Stored, where string) {
			t.Helper()
			if s.Where != where || s.Key != "card 4711" || s.Message.UUID != "o-1" || string(s.Message.Payload) != "o-1" ||
				len(s.Message.Metadata) != 1 || s.Message.Metadata.Get("tenant") != "acme" || s.State.ID != "o-1" {
				t.Errorf("stored: %+v %+v", s, s.Message)
			}
		}
		waiting := orders.Waiting()
		if len(waiting) != 1 || !waiting[0].State.Due.Equal(began.Add(time.Second)) || time.Since(began) != 0 {
			t.Fatalf("waiting after %s: %+v", time.Since(began), waiting)
		}
		check(waiting[0], "orders.billing.retry.1s")
		dead := orders.DeadLetters()
		if len(dead) != 1 || dead[0].State.Attempts != 4 || dead[0].State.Reason != redeliver.ReasonExhausted || dead[0].State.Error != "bank is down" {
			t.Fatalf("dead: %+v", dead)
		}
		check(dead[0], "orders.billing.dlq")
		if n := len(orders.Waiting()); n > 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

func TestAnOutcomeFollowsTheHandlersAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err      error // of the first attempt
		policy   redeliver.Policy
		reason   redeliver.Reason
		attempts int
		took     time.Duration
	}{
		"succeeds":        {nil, quick, "", 1, 0},
		"recovers":        {errDown, quick, "", 2, time.Second},
		"permanent":       {redeliver.Permanent(errDown), quick, redeliver.ReasonPermanent, 1, 0},
		"asks for a time": {redeliver.RetryAfter(errDown, 36*time.Hour), quick, "", 2, 36 * time.Hour},
		"too long":        {redeliver.RetryAfter(errDown, 2*redeliver.MaxWait), quick, redeliver.ReasonUnschedulable, 1, 0},
		"postponed":       {redeliver.Postpone(errDown), quick, "", 2, time.Second},
		"no retries":      {errDown, redeliver.Policy{MaxRetries: redeliver.NoRetries}, redeliver.ReasonExhausted, 1, 0},
		"a day":           {errDown, redeliver.Policy{Backoff: redeliver.Fixed(24 * time.Hour)}, "", 2, 24 * time.Hour},
		"too old":         {errDown, redeliver.Policy{Backoff: redeliver.Fixed(time.Hour), MaxAge: time.Minute}, redeliver.ReasonExpired, 1, 0},
		"immediately":     {errDown, redeliver.Policy{Immediate: 1}, "", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				var runs atomic.Int32
				orders := open(b, c.policy).Handle("orders", func(*message.Message) error {
					if runs.Add(1) > 1 {
						return nil
					}
					return c.err
				})
				b.Publish("orders", msg("o-1"))
				got := orders.Outcome("o-1")
				if got.Committed != (c.reason == "") || got.State.Reason != c.reason || len(got.Attempts) != c.attempts || got.Took != c.took {
					t.Errorf("want %q after %d attempts and %s: %s", c.reason, c.attempts, c.took, got)
				}
			})
		})
	}
}
