package middleware_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/middleware"
)

// pubsub is a subscriber as an adapter makes one: what was written to a level
// comes back when it is due, and a nack is an attempt.
type pubsub struct {
	*broker
	sub       *delayqueue.Subscription
	wrote     chan redeliver.State // to the level
	out       chan *message.Message
	published []*message.Message
	publish   error // the answer of Publish
}

func newPubSub(p redeliver.Policy) *pubsub {
	ps := &pubsub{broker: &broker{}, wrote: make(chan redeliver.State, 100), out: make(chan *message.Message)}
	ps.sub = subscribe(ps.broker, p)
	ps.sub.Scheduler = ps
	return ps
}

func (ps *pubsub) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	where, err := ps.broker.Schedule(ctx, d, st)
	ps.wrote <- *st
	return where, err
}

func (ps *pubsub) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	go func() {
		defer close(ps.out)
		var waited *redeliver.State
		for ps.deliver(ctx, waited) {
			select {
			case st := <-ps.wrote:
				<-time.After(time.Until(st.Due))
				waited = &st
			case <-ctx.Done():
				return
			}
		}
	}()
	return ps.out, nil
}

// deliver delivers the message until it is settled.
func (ps *pubsub) deliver(ctx context.Context, waited *redeliver.State) bool {
	d := &delayqueue.Delivery{Sub: ps.sub, Record: record{}, ID: "orders/0/1", Waited: waited}
	d.Begin(ctx)
	defer d.End(nil)
	msg, _ := d.Record.Message()
	msg.SetContext(d)
	select {
	case ps.out <- msg:
	case <-ctx.Done():
		return false
	}
	select {
	case <-msg.Acked():
		ps.notef("acked")
		return true
	case <-msg.Nacked():
		ps.notef("nacked")
		return ps.sub.Forward(d, ps.sub.Decide(d.State(), redeliver.ErrNacked, time.Now()), redeliver.ErrNacked) == nil
	case <-ctx.Done():
		return false
	}
}

func (*pubsub) Close() error { return nil }

func (ps *pubsub) Publish(_ string, msgs ...*message.Message) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.publish != nil {
		return ps.publish
	}
	ps.published = append(ps.published, msgs...)
	return nil
}

// route runs a Router for a while in a bubble.
func route(t *testing.T, ps *pubsub, h message.HandlerFunc, ms ...message.HandlerMiddleware) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: minute}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(ms...)
	router.AddHandler("charge", "orders", ps, "invoices", ps, h)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := router.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-time.After(hour)
	stop()
	running.Wait()
}

func invoice(msg *message.Message) ([]*message.Message, error) {
	out := message.NewMessage("2", []byte("invoice"))
	out.SetContext(msg.Context())
	return []*message.Message{out}, nil
}

func TestRouterRetriesThroughTheSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPubSub(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(minute)})
		var attempts []int
		var order []string
		around := func(name string) message.HandlerMiddleware {
			return func(h message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					order = append(order, name)
					produced, err := h(msg)
					if err != nil {
						order = append(order, name+" sees "+err.Error())
					}
					return produced, err
				}
			}
		}
		route(t, ps, func(msg *message.Message) ([]*message.Message, error) {
			st, _ := redeliver.FromContext(msg.Context())
			attempts = append(attempts, st.Attempt())
			if message.HandlerNameFromCtx(msg.Context()) != "charge" {
				t.Error("the Router's values are not in the handler's context")
			}
			if st.Attempt() < 3 {
				return nil, errHandler
			}
			return invoice(msg)
		}, around("outer"), middleware.Retry(), around("inner"))
		if !slices.Equal(attempts, []int{1, 2, 3}) || len(ps.writes()) != 2 || len(ps.published) != 1 {
			t.Errorf("attempts %v, %d written, %d published", attempts, len(ps.writes()), len(ps.published))
		}
		fails := []string{"outer", "inner", "inner sees " + errHandler.Error()} // and the outer one sees nothing of it
		if want := slices.Concat(fails, fails, []string{"outer", "inner"}); !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
		// Acked after the confirmation, never before.
		once := []string{"Attempted", "level confirms", "RetryScheduled", "acked"}
		if got, want := ps.seen(), slices.Concat(once, once, []string{"Attempted", "acked"}); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A publisher that always fails: counted, and in the DLQ at last, with its error
// where PublishInside saw it.
func TestPublisherThatAlwaysFails(t *testing.T) {
	for _, inside := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ps := newPubSub(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(minute)})
			ps.publish = errBroker
			runs := 0
			chain, text := []message.HandlerMiddleware{middleware.Retry()}, redeliver.ErrNacked.Error()
			if inside {
				chain = append(chain, middleware.PublishInside(ps, "invoices"))
				text = "publishing 1 produced messages to invoices: the broker is down"
			}
			route(t, ps, func(msg *message.Message) ([]*message.Message, error) { runs++; return invoice(msg) }, chain...)
			took := ps.writes()
			if runs != 4 || len(took) != 4 || took[3].where != "dlq" {
				t.Fatalf("inside %v: ran %d times, written %+v", inside, runs, took)
			}
			if st := took[3].state; st.Reason != redeliver.ReasonExhausted || st.Attempts != 4 || st.Error != text {
				t.Errorf("inside %v: buried as %+v", inside, st)
			}
		})
	}
}

func TestPublishInside(t *testing.T) {
	ps := newPubSub(redeliver.Policy{})
	h := middleware.PublishInside(ps, "invoices")
	msg := deliver(t.Context(), ps.sub)
	if produced, err := h(invoice)(msg); produced != nil || err != nil || len(ps.published) != 1 || string(ps.published[0].Payload) != "invoice" {
		t.Errorf("%v, %v, published %+v", produced, err, ps.published)
	}
	failing := func(msg *message.Message) ([]*message.Message, error) {
		produced, _ := invoice(msg)
		return produced, errHandler
	}
	if produced, err := h(failing)(msg); produced != nil || !errors.Is(err, errHandler) || len(ps.published) != 1 {
		t.Errorf("a failed handler: %v, %v, published %+v", produced, err, ps.published)
	}
	ps.publish = errBroker
	if produced, err := h(succeed)(msg); produced != nil || err != nil {
		t.Errorf("nothing produced: %v, %v", produced, err)
	}
}

// The late answer of a handler that outlived its Timeout is ignored, so what it
// produced is not published: the retry produces it again.
func TestPublishInsideDropsWhatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPubSub(redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries})
		h := func(msg *message.Message) ([]*message.Message, error) {
			<-time.After(minute)
			return invoice(msg)
		}
		msg := deliver(t.Context(), ps.sub)
		if _, err := middleware.Retry()(middleware.PublishInside(ps, "invoices")(h))(msg); err != nil || len(ps.published) != 0 {
			t.Errorf("%v, published %+v", err, ps.published)
		}
		late := events[redeliver.LateAnswer](ps.broker)
		if len(late) != 1 || !errors.Is(late[0].Err, redeliver.ErrTimeout) {
			t.Errorf("told %+v", late)
		}
	})
}

// Watermill's Timeout leaves a message with a context that it has ended, which
// says nothing about the attempt.
func TestPublishInsideAroundAContextThatEnded(t *testing.T) {
	ps := newPubSub(redeliver.Policy{})
	h := func(msg *message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithCancel(msg.Context())
		defer cancel()
		msg.SetContext(ctx)
		return invoice(msg)
	}
	if _, err := middleware.PublishInside(ps, "invoices")(h)(deliver(t.Context(), ps.sub)); err != nil || len(ps.published) != 1 {
		t.Errorf("%v, published %+v", err, ps.published)
	}
}

// While the broker refuses, the handler does not run again, and the message is
// not acked: only the write is tried again.
func TestHandlerRunsOnceThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ps := newPubSub(redeliver.Policy{MaxRetries: redeliver.NoRetries})
		ps.refuse = func(context.Context, string) error {
			if time.Since(start) < 30*minute {
				return errBroker
			}
			return nil
		}
		runs := 0
		route(t, ps, func(*message.Message) ([]*message.Message, error) { runs++; return nil, errHandler }, middleware.Retry())
		took := ps.writes()
		if runs != 1 || len(took) != 1 || took[0].at.Sub(start) < 30*minute {
			t.Errorf("ran %d times, written %+v", runs, took)
		}
		if log := ps.seen(); log[len(log)-1] != "acked" || slices.Index(log, "acked") < slices.Index(log, "dlq confirms") {
			t.Errorf("%q", log)
		}
	})
}

// A handler that nacks by hand and returns an error gave two answers, and its
// message became two.
func TestNackByHandMakesOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newPubSub(redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(minute)})
		runs := 0
		route(t, ps, func(msg *message.Message) ([]*message.Message, error) {
			runs++
			msg.Nack()
			return nil, errHandler
		}, middleware.Retry())
		if took := ps.writes(); runs != 3 || len(took) != 3 || took[2].where != "dlq" {
			t.Errorf("ran %d times, written %+v", runs, took)
		}
	})
}
