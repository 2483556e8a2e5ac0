package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

var paused = &redeliver.PauseMark{By: "ann@host", At: time.Unix(1e9, 0), Reason: "the bank is closed"}

// When an operator pauses the group, running attempts end, and their retries are written. Nothing begins until the group is
// resumed, neither new messages nor the retry.
func TestNothingBeginsWhileTheGroupIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Second)})
		var changes []redeliver.SubscriptionChanged
		b.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				changes = append(changes, c)
			}
		})
		var runs atomic.Int64
		b.run(t, handle(func(context.Context, *record) error {
			<-time.After(10 * time.Second)
			if runs.Add(1) == 1 {
				return errors.New("no")
			}
			return nil
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		b.sub.SetPaused(paused)
		b.sub.SetPaused(paused) // each look finds the mark
		b.publish("b")
		<-time.After(time.Hour)
		synctest.Wait()
		if settled, _ := b.all(); runs.Load() != 1 || !slices.Equal(settled, []string{"a"}) || !b.sub.Paused() {
			t.Errorf("%d attempts, settled %v", runs.Load(), settled)
		}
		b.sub.SetPaused(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		if settled, dead := b.all(); runs.Load() != 3 || len(settled) != 3 || len(dead) > 0 {
			t.Errorf("%d attempts, settled %v, in the DLQ %v", runs.Load(), settled, dead)
		}
		if len(changes) != 2 || changes[0].Change != redeliver.ChangeGroupPaused || changes[1].Change != redeliver.ChangeGroupResumed {
			t.Fatalf("changes %v", changes)
		}
		for _, c := range changes {
			if !strings.Contains(c.Detail, paused.By) || !strings.Contains(c.Detail, paused.Reason) {
				t.Errorf("%s: %s", c.Change, c.Detail)
			}
		}
	})
}

// When an operator pauses new messages only, retries that fall due run, also if new messages waited for the only slot. New
// messages run after the pause.
func TestRetriesContinueWhileNewMessagesArePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Minute)})
		b.sub.MaxInFlight, b.sub.MaxRetriesInFlight = 1, 1
		var runs []string
		b.run(t, handle(func(_ context.Context, r *record) error {
			runs = append(runs, r.id)
			<-time.After(10 * time.Second)
			if len(runs) <= 2 {
				return errors.New("no")
			}
			return nil
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		b.publish("b") // waits for the slot
		<-time.After(time.Second)
		newOnly := *paused
		newOnly.NewOnly = true
		b.sub.SetPaused(&newOnly)
		<-time.After(time.Hour)
		synctest.Wait()
		if want := []string{"a", "a", "a"}; !slices.Equal(runs, want) {
			t.Errorf("runs in the pause: %v, want %v", runs, want)
		}
		b.sub.SetPaused(paused)
		b.sub.SetPaused(&newOnly)
		b.sub.SetPaused(nil)
		<-time.After(time.Minute)
		synctest.Wait()
		if want := []string{"a", "a", "a", "b"}; !slices.Equal(runs, want) {
			t.Errorf("runs after the pause: %v, want %v", runs, want)
		}
	})
}

// A pause that begins while a message cannot be written, and ends after the write, does not hide the end of the
// failures.
func TestAPauseDoesNotHideTheEndOfFailingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: redeliver.NoRetries})
		changes, up := b.refuseUntilUp()
		b.run(t, handle(func(context.Context, *record) error { return errors.New("no") }), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		b.sub.SetPaused(paused)
		up.Store(true)
		<-time.After(time.Minute)
		b.sub.SetPaused(nil)
		synctest.Wait()
		want := []redeliver.Change{redeliver.ChangeIntakePaused, redeliver.ChangeGroupPaused, redeliver.ChangeIntakeResumed, redeliver.ChangeGroupResumed}
		if !slices.Equal(*changes, want) {
			t.Errorf("changes %v", *changes)
		}
	})
}

// A process whose look fails stays paused or not, as before, and reports the error once. It returns its messages in
// hand at the second look that finds the mark, not at the first.
func TestAFailedPollKeepsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []redeliver.Change
		sub := &engine.Subscription{Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			changes = append(changes, e.(redeliver.SubscriptionChanged).Change)
		})}
		type answer struct {
			mark *redeliver.PauseMark
			err  error
		}
		var broker atomic.Pointer[answer]
		broker.Store(&answer{})
		l := &engine.PausePoller{Sub: sub, Mark: func(context.Context) (*redeliver.PauseMark, error) { a := broker.Load(); return a.mark, a.err }}
		ctx, cancel := context.WithCancel(t.Context())
		var given atomic.Int64
		l.Poll(ctx)
		go l.Run(ctx, func() { given.Add(1) })
		look := func(wantPaused bool, wantGiven int64) {
			t.Helper()
			<-time.After(engine.PausePollInterval)
			synctest.Wait()
			if sub.Paused() != wantPaused || given.Load() != wantGiven {
				t.Errorf("paused %v, messages returned %d times", sub.Paused(), given.Load())
			}
		}
		<-time.After(time.Second)
		look(false, 0)
		broker.Store(&answer{mark: paused})
		look(true, 0)
		look(true, 1)
		broker.Store(&answer{err: errors.New("no broker")})
		look(true, 1)
		look(true, 1)
		broker.Store(&answer{})
		look(false, 1)
		cancel()
		want := []redeliver.Change{redeliver.ChangeGroupPaused, redeliver.ChangeCommandsNotRead, redeliver.ChangeCommandsRead, redeliver.ChangeGroupResumed}
		if !slices.Equal(changes, want) {
			t.Errorf("changes %v", changes)
		}
	})
}
