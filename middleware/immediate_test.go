package middleware_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/middleware"
)

type key struct{}

// Each try gets the message as the broker delivered it, whatever the one before
// did to its own, with its own number, below the same values.
func TestImmediateTries(t *testing.T) {
	b := &broker{}
	msg := deliver(t.Context(), subscribe(b, redeliver.Policy{MaxRetries: 3, Immediate: 2}))
	outer := context.WithValue(msg.Context(), key{}, "the Router's")
	msg.SetContext(outer)
	var attempts []int
	var before []*message.Message
	_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		st, ok := redeliver.FromContext(ctx)
		attempts = append(attempts, st.Attempt())
		if !ok || st.ID != "orders/0/1" || st.Group != "billing" || ctx.Err() != nil || ctx.Value(key{}) != "the Router's" {
			t.Errorf("try %d sees %+v, %v", len(attempts), st, ctx.Err())
		}
		if len(attempts) > 1 && st.Error != errHandler.Error() {
			t.Errorf("try %d does not see what went wrong before: %+v", len(attempts), st)
		}
		if !msg.Equals(pristine()) || slices.Contains(before, msg) {
			t.Errorf("try %d got what another one left: %+v", len(attempts), msg)
		}
		before = append(before, msg)
		copy(msg.Payload, "ruined!")
		msg.Metadata.Set("tenant", "nobody")
		msg.UUID = "another"
		msg.SetContext(t.Context())
		return []*message.Message{msg}, errHandler
	})(msg)
	if err != nil || !slices.Equal(attempts, []int{1, 2, 3}) || is(msg) != "open" || msg.Context() != outer {
		t.Errorf("%v, attempts %v, %s", err, attempts, is(msg))
	}
	if st := b.only(t, "level"); st.Attempts != 3 || st.ID != "orders/0/1" {
		t.Errorf("written as %+v", st)
	}
	for i, a := range events[redeliver.Attempted](b) {
		if a.State.Attempt() != i+1 || !errors.Is(a.Err, errHandler) {
			t.Errorf("event %d: %+v", i, a)
		}
	}
	if d := delayqueue.FromContext(outer); !d.Forwarded() {
		t.Error("the subscriber's delivery does not know that the message moved on")
	}
}

func TestImmediateTrySucceeds(t *testing.T) {
	b := &broker{}
	tries := 0
	got := handle(t, subscribe(b, redeliver.Policy{Immediate: 1}), func(msg *message.Message) ([]*message.Message, error) {
		if tries++; tries == 1 {
			panic("boo")
		}
		return []*message.Message{msg}, nil
	})
	if got.err != nil || len(got.produced) != 1 || got.produced[0].Context().Err() != nil || len(b.writes()) != 0 {
		t.Errorf("%v, %v, written %+v", got.produced, got.err, b.writes())
	}
}

// What an attempt hands on must end with it, or its goroutines would outlive it.
func TestContextOfAFailedTryEnds(t *testing.T) {
	var first context.Context
	tries := 0
	handle(t, subscribe(&broker{}, redeliver.Policy{Immediate: 1}), func(msg *message.Message) ([]*message.Message, error) {
		if tries++; tries == 1 {
			first = msg.Context() //nolint:fatcontext // to see that it ends
			return nil, errHandler
		}
		if first.Err() == nil {
			t.Error("the second try runs, and the context of the first is alive")
		}
		return nil, errHandler
	})
	if <-first.Done(); tries != 2 {
		t.Errorf("%d tries", tries)
	}
}

func TestSessionEndsBetweenImmediateTries(t *testing.T) {
	session, end := context.WithCancel(t.Context())
	b := &broker{}
	tries := 0
	_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		if tries++; tries == 2 {
			end()
			<-msg.Context().Done()
		}
		return nil, errHandler
	})(deliver(session, subscribe(b, redeliver.Policy{MaxRetries: 5, Immediate: 5})))
	if !errors.Is(err, engine.ErrAbandoned) || tries != 2 || len(b.writes()) != 0 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

func TestInvalidIsAskedFirst(t *testing.T) {
	gone := errors.New("the tenant is gone")
	b := &broker{}
	got := handle(t, subscribe(b, redeliver.Policy{Invalid: func(m redeliver.Message) error {
		if m.State.ID != "orders/0/1" || m.State.Attempt() != 1 || m.Headers.Get("tenant") != "acme" || string(m.Body) != "payload" {
			t.Errorf("Invalid is shown %+v", m)
		}
		return gone
	}}), func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	})
	if got.err != nil {
		t.Error(got.err)
	}
	if st := b.only(t, "dlq"); st.Reason != redeliver.ReasonInvalidated || st.Attempts != 0 || st.Error != "the tenant is gone" {
		t.Errorf("buried as %+v", st)
	}
	if log := b.seen(); !slices.Equal(log, []string{"dlq confirms", "DeadLettered"}) {
		t.Errorf("%q", log)
	}
}

func TestInvalidThatPanics(t *testing.T) {
	b := &broker{}
	got := handle(t, subscribe(b, redeliver.Policy{Invalid: func(redeliver.Message) error { panic("boo") }}), returns(nil))
	if st := b.only(t, "dlq"); got.err != nil || st.Reason != redeliver.ReasonInvalidated || st.Error != "panic: boo" {
		t.Errorf("%v, buried as %+v", got.err, st)
	}
}

// Its tenant may be deleted by the attempt that failed. It was asked only once,
// however many tries were made in place.
func TestInvalidIsAskedBeforeEveryTry(t *testing.T) {
	b := &broker{}
	var asked []int
	handle(t, subscribe(b, redeliver.Policy{MaxRetries: 3, Immediate: 3, Invalid: func(m redeliver.Message) error {
		if asked = append(asked, m.State.Attempt()); m.Headers.Get("tenant") != "acme" {
			t.Error("Invalid is shown what a handler left")
		}
		if m.State.Attempts == 2 {
			return errHandler
		}
		return nil
	}}), func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata.Set("tenant", "nobody")
		return nil, errHandler
	})
	if st := b.only(t, "dlq"); !slices.Equal(asked, []int{1, 2, 3}) || st.Reason != redeliver.ReasonInvalidated || st.Attempts != 2 {
		t.Errorf("asked %v, buried as %+v", asked, st)
	}
}

// unreadable is a record whose decoder answered once and does not any more.
type unreadable struct{}

var errRegistry = errors.New("schema registry is gone")

func (unreadable) Message() (*message.Message, error) { return nil, errRegistry }

// A second try of a record that cannot be decoded again must not run the handler
// on nothing and call that a success.
func TestImmediateTryThatCannotBeDecodedGoesToTheDLQ(t *testing.T) {
	b := &broker{}
	sub := subscribe(b, redeliver.Policy{MaxRetries: 3, Immediate: 2})
	d := &delayqueue.Delivery{Sub: sub, Record: unreadable{}, ID: "orders/0/1"}
	d.Begin(t.Context())
	msg := pristine()
	msg.SetContext(d)
	runs := 0
	_, err := middleware.Retry()(func(*message.Message) ([]*message.Message, error) {
		runs++
		return nil, errHandler
	})(msg)
	if err != nil || runs != 1 {
		t.Errorf("%v after %d runs", err, runs)
	}
	wrote := b.writes()
	if len(wrote) != 1 || wrote[0].where != "dlq" || wrote[0].state.Reason != redeliver.ReasonUndecodable || wrote[0].state.Attempts != 1 {
		t.Errorf("written: %+v", wrote)
	}
}
