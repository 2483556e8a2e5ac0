package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

func TestForwardTellsOnlyWhatIsConfirmed(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		log  []string
	}{
		{"retry", errOurs, []string{"level confirms", "RetryScheduled"}},
		{"postpone", redeliver.Postpone(errOurs), []string{"level confirms", "MessagePostponed"}},
		{"dead-letter", redeliver.Permanent(errOurs), []string{"dlq confirms", "DeadLettered"}},
	} {
		b := &broker{}
		sub, d := subscribe(b, t.Context())
		dec := sub.Decide(d.State(), c.err, time.Now())
		if err := sub.Forward(d, dec, c.err); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := b.seen(); !slices.Equal(got, c.log) {
			t.Errorf("%s: %q, want %q", c.name, got, c.log)
		}
		if !d.Forwarded() || b.wrote[0] != dec.State || dec.State.Policy != delayqueue.Fingerprint(sub.Policy) {
			t.Errorf("%s: wrote %+v, decided %+v", c.name, b.wrote[0], dec.State)
		}
	}
}

func TestForwardEventsSayWhatHappened(t *testing.T) {
	b := &broker{}
	sub, d := subscribe(b, t.Context())
	dec := later(t, sub, d)
	if err := sub.Forward(d, dec, errOurs); err != nil {
		t.Fatal(err)
	}
	want := redeliver.RetryScheduled{State: dec.State, Delay: dec.Delay, Where: "level", Err: errOurs}
	if got := events[redeliver.RetryScheduled](b); len(got) != 1 || got[0] != want {
		t.Errorf("told %+v, want %+v", got, want)
	}
}

// Ack only after confirm: while both refuse, Forward does not return, and when
// one of them takes the message it does.
func TestForwardReturnsOnlyAfterTheConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		confirm := make(chan struct{})
		b := &broker{schedule: func(context.Context, int) error { <-confirm; return nil }}
		sub, d := subscribe(b, t.Context())
		returned := make(chan error, 1)
		go func() { returned <- sub.Forward(d, later(t, sub, d), errOurs) }()
		synctest.Wait()
		if len(returned) > 0 || d.Forwarded() || len(b.seen()) > 0 {
			t.Errorf("before the confirmation: returned %d, forwarded %v, %q", len(returned), d.Forwarded(), b.seen())
		}
		close(confirm)
		if err := <-returned; err != nil || !d.Forwarded() {
			t.Errorf("after it: %v, forwarded %v", err, d.Forwarded())
		}
	})
}

func TestForwardBuriesWhatCannotBeHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLong := fmt.Errorf("here: %w", &redeliver.UnschedulableError{Wait: hour, Max: minute})
		b := &broker{
			schedule: func(context.Context, int) error { return tooLong },
			bury: func(_ context.Context, try int) error {
				if try == 2 { // the first was the scheduler's
					return errTheirs
				}
				return nil
			},
		}
		sub, d := subscribe(b, t.Context())
		if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
			t.Fatal(err)
		}
		want := []string{"level refuses", "dlq refuses", "intake paused", "PublishFailed", "dlq confirms", "intake resumed", "DeadLettered"}
		if got := b.seen(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		st := b.wrote[0]
		if st.Reason != redeliver.ReasonUnschedulable || !st.Due.IsZero() || st.Attempts != 1 || st.Policy != delayqueue.Fingerprint(sub.Policy) {
			t.Errorf("buried as %+v", st)
		}
		if told := events[redeliver.DeadLettered](b); len(told) != 1 || told[0].State != st || !errors.Is(told[0].Err, errOurs) {
			t.Errorf("told %+v", told)
		}
	})
}

func TestForwardAbandonsWhatIsLost(t *testing.T) {
	session, end := context.WithCancel(t.Context())
	b := &broker{}
	sub, d := subscribe(b, session)
	end()
	err := sub.Forward(d, later(t, sub, d), errOurs)
	if !errors.Is(err, delayqueue.ErrAbandoned) || d.Forwarded() {
		t.Errorf("%v, forwarded %v", err, d.Forwarded())
	}
	if got, want := b.seen(), []string{"Abandoned"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if told := events[redeliver.Abandoned](b); told[0].State != d.State() || !errors.Is(told[0].Err, errOurs) {
		t.Errorf("told %+v", told)
	}
}

// A handler that nacks its message and returns an error is answered by its
// subscriber and by the middleware, at once. The message split into two, and
// each of them again.
func TestForwardWritesAMessageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		confirm := make(chan struct{})
		b := &broker{schedule: func(_ context.Context, try int) error {
			<-confirm
			if try == 1 {
				return errTheirs
			}
			return nil
		}}
		sub, d := subscribe(b, t.Context())
		next := d.After(redeliver.State{ID: d.ID, Attempts: 1})
		var wg sync.WaitGroup
		for _, d := range []*delayqueue.Delivery{d, next, d} {
			wg.Go(func() {
				if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
					t.Error(err)
				}
				if !slices.Contains(b.seen(), "level confirms") {
					t.Error("Forward returned nil before anything was confirmed")
				}
			})
		}
		close(confirm)
		wg.Wait()
		if len(b.wrote) != 1 || len(events[redeliver.RetryScheduled](b)) != 1 {
			t.Errorf("the message was written %d times", len(b.wrote))
		}
	})
}

// The second of them must not take the first's failure for a success.
func TestForwardTriesAgainAfterAnAbandonedOne(t *testing.T) {
	session, end := context.WithCancel(t.Context())
	b := &broker{}
	sub, d := subscribe(b, session)
	end()
	for range 2 {
		if err := sub.Forward(d, later(t, sub, d), errOurs); !errors.Is(err, delayqueue.ErrAbandoned) {
			t.Errorf("forwarded with %v", err)
		}
	}
}

func TestForwardNeedsNoSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{schedule: func(_ context.Context, try int) error {
			if try == 1 {
				return errTheirs
			}
			return nil
		}}
		session, end := context.WithCancel(t.Context())
		sub, d := subscribe(b, session)
		sub.Sink = nil
		if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil || len(b.wrote) != 1 {
			t.Errorf("%v, %d written", err, len(b.wrote))
		}
		lost := deliver(sub, session)
		end()
		if err := sub.Forward(lost, later(t, sub, lost), errOurs); !errors.Is(err, delayqueue.ErrAbandoned) {
			t.Errorf("lost: %v", err)
		}
	})
}

// A sink that panics must not take the message, or the process, along.
func TestTellSurvivesItsSink(t *testing.T) {
	told := 0
	sub := &delayqueue.Subscription{Sink: redeliver.SinkFunc(func(redeliver.Event) {
		told++
		panic("no disk")
	})}
	sub.Tell(redeliver.Published{})
	sub.Tell(redeliver.Published{})
	if told != 2 {
		t.Errorf("told %d times", told)
	}
}
