package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// onAir runs one message of a broadcast consumer through h, as the Router does, until
// it is over.
func onAir(t *testing.T, p redeliver.Policy, h message.HandlerFunc) *broker {
	t.Helper()
	b := &broker{}
	var ps redeliver.Problems
	air := delayqueue.NewBroadcast(t.Context(), &delayqueue.Subscription{
		Origin: "prices", Policy: delayqueue.BroadcastPolicy(&ps, "Policy", p), Sink: b, MaxInFlight: 1,
	})
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go air.Run(ctx, time.Minute, func(ctx context.Context) {
		air.Deliver(ctx, &delayqueue.Aired{Record: record{}, ID: "prices/0/1", Done: func(bool) { cancel() }})
		<-ctx.Done()
	})
	for msg := range air.Out {
		if _, err := h(msg); err != nil {
			msg.Nack()
		} else {
			msg.Ack()
		}
	}
	return b
}

// Around a broadcast consumer Retry is refused: it would wait for a group that is not
// there. Asked for by name, it says why a handler has failed, and no more.
func TestRetryAroundABroadcast(t *testing.T) {
	panics := func(*message.Message) ([]*message.Message, error) { panic("no") }
	allowed := middleware.Retry(middleware.AllowBroadcast)
	for _, c := range []struct {
		name     string
		policy   redeliver.Policy
		handler  message.HandlerFunc
		attempts int
		err      error // nil where it succeeds
		reason   redeliver.Reason
	}{
		{name: "not asked for", handler: middleware.Retry()(panics), attempts: 1, err: middleware.ErrBroadcast, reason: redeliver.ReasonExhausted},
		{name: "succeeds", handler: allowed(returns(nil)), attempts: 1},
		{name: "fails", handler: allowed(returns(errHandler)), attempts: 1, err: errHandler, reason: redeliver.ReasonExhausted},
		{name: "permanent", policy: redeliver.Policy{Immediate: 3}, handler: allowed(returns(redeliver.Permanent(errHandler))), attempts: 1, err: errHandler, reason: redeliver.ReasonPermanent},
		{name: "at once", policy: redeliver.Policy{Immediate: 3}, handler: allowed(returns(errHandler)), attempts: 4, err: errHandler, reason: redeliver.ReasonExhausted},
		{name: "later", policy: redeliver.Policy{Immediate: 3}, handler: allowed(returns(redeliver.RetryAfter(errHandler, time.Hour))), attempts: 1, err: errHandler, reason: redeliver.ReasonExhausted},
		{name: "panics", handler: allowed(panics), attempts: 1, err: redeliver.ErrPanic, reason: redeliver.ReasonPanic},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				b := onAir(t, c.policy, c.handler)
				if n := len(events[redeliver.Attempted](b)); n != c.attempts || time.Since(began) > 0 || len(b.writes()) > 0 {
					t.Errorf("%d attempts in %s, %d writes", n, time.Since(began), len(b.writes()))
				}
				failed := events[redeliver.BroadcastFailed](b)
				if c.err == nil && len(failed) == 0 {
					return
				}
				if len(failed) != 1 || !errors.Is(failed[0].Err, c.err) || failed[0].State.Reason != c.reason {
					t.Errorf("told %+v, want %v, %s", failed, c.err, c.reason)
				}
			})
		})
	}
}
