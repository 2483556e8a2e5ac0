package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// extending is a policy with a Timeout of one minute and a MaxTimeout of five.
func extending() redeliver.Policy {
	return redeliver.Policy{Timeout: time.Minute, MaxTimeout: 5 * time.Minute, Backoff: redeliver.Fixed(24 * time.Hour)}
}

// A handler extends its attempt repeatedly, and the deadline of its context moves. Other attempts end at their own
// timeouts.
func TestAHandlerExtendsItsAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(extending())
		j.start(t, handle(func(ctx context.Context, r *record) error {
			if r.id != "long" {
				<-ctx.Done()
				return ctx.Err()
			}
			began := time.Now()
			for range 4 {
				if err := redeliver.Extend(ctx, time.Minute); err != nil {
					t.Error(err)
				}
				if at, ok := ctx.Deadline(); !ok || time.Until(at).Round(time.Millisecond) != time.Minute {
					t.Errorf("the deadline is in %s", time.Until(at))
				}
				if err := redeliver.Extend(ctx, time.Second); err != nil { // it does not shorten the attempt
					t.Error(err)
				}
				<-time.After(50 * time.Second)
			}
			if took := time.Since(began); ctx.Err() != nil || took < 3*time.Minute {
				t.Errorf("%v after %s", ctx.Err(), took)
			}
			return nil
		}))
		j.publish("before", "long", "behind")
		<-time.After(time.Hour)
		synctest.Wait()
		if settled, _ := j.all(); len(settled) != 3 || len(j.written()) != 2 || len(events[redeliver.Committed](j)) != 1 {
			t.Errorf("settled %v, written %+v", settled, j.written())
		}
	})
}

// MaxTimeout bounds the whole attempt: the handler gets what it allows, and an error.
func TestMaxTimeoutBoundsAnExtension(t *testing.T) {
	for name, blocking := range map[string]bool{"it moves on": false, "it keeps its place": true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(extending())
			j.sub.KeepsPlace = blocking
			var extendErr error
			var after, took time.Duration
			j.start(t, handle(func(ctx context.Context, _ *record) error {
				if took > 0 {
					return nil
				}
				extendErr = redeliver.Extend(ctx, time.Hour)
				began := time.Now()
				<-ctx.Done()
				took = time.Since(began)
				if timeout, ok := errors.AsType[*redeliver.TimeoutError](context.Cause(ctx)); ok {
					after = timeout.After
				}
				if err := redeliver.Extend(ctx, time.Minute); !errors.Is(err, redeliver.ErrNotExtended) {
					t.Errorf("%s: Extend after the end of the attempt returned %v", name, err)
				}
				return ctx.Err()
			}))
			j.publish("a")
			<-time.After(10 * time.Minute)
			synctest.Wait()
			if !errors.Is(extendErr, redeliver.ErrNotExtended) || !strings.Contains(extendErr.Error(), "leaves 5m0s") || took != 5*time.Minute || after != took {
				t.Errorf("%s: it ended after %s, as %s, and the report is %v", name, took, after, extendErr)
			}
			if a := events[redeliver.Attempted](j); len(a) < 1 || !errors.Is(a[0].Err, redeliver.ErrTimeout) {
				t.Errorf("%s: attempts %+v", name, a)
			}
		})
	}
}

// Extend returns nil without a Timeout, and an error without an attempt.
func TestExtendWithoutATimeoutOrAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Timeout: redeliver.NoTimeout})
		j.start(t, handle(func(ctx context.Context, _ *record) error { return redeliver.Extend(ctx, time.Hour) }))
		j.publish("a")
		synctest.Wait()
		if len(j.written()) > 0 {
			t.Errorf("written %+v", j.written())
		}
		if err := redeliver.Extend(t.Context(), time.Hour); !errors.Is(err, redeliver.ErrNotExtended) {
			t.Errorf("outside an attempt: %v", err)
		}
	})
}

// A batch function extends its batch, by the context of the batch or of a message. Messages that it has settled are not extended.
func TestABatchFunctionExtendsItsBatch(t *testing.T) {
	for name, of := range map[string]func(*engine.Batch, members) context.Context{
		"the batch's context": func(b *engine.Batch, _ members) context.Context { return context.WithValue(b, errOurs, 1) },
		"a message's context": func(_ *engine.Batch, all members) context.Context { return all[1].Context() },
	} {
		for _, hangs := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				j, bs := newJournal(extending()), &batchRecorder{}
				var ended time.Duration
				j.start(t, bs.options(redeliver.BatchConfig{Size: 3}, func(b *engine.Batch, all members) error {
					began := time.Now()
					all[0].Answer(nil)
					if err := redeliver.Extend(of(b, all), 3*time.Minute); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if at, ok := b.Deadline(); !ok || time.Until(at).Round(time.Millisecond) != 3*time.Minute {
						t.Errorf("%s: the deadline is in %s", name, time.Until(at))
					}
					if hangs {
						<-b.Done()
						ended = time.Since(began)
						return b.Err()
					}
					<-time.After(2 * time.Minute)
					return b.Err()
				}))
				j.publish("a", "b", "c")
				<-time.After(time.Hour)
				synctest.Wait()
				committed, written := len(events[redeliver.Committed](j)), len(j.written())
				switch {
				case !hangs && (committed != 3 || written != 0):
					t.Errorf("%s: %d committed, %d written; want all committed", name, committed, written)
				case hangs && (committed != 1 || written != 2 || ended != 3*time.Minute):
					t.Errorf("%s: %d committed, %d written, after %s; want 1 and 2 after 3m", name, committed, written, ended)
				}
				for _, a := range events[redeliver.Attempted](j) {
					if timeout, ok := errors.AsType[*redeliver.TimeoutError](a.Err); ok && timeout.After != 3*time.Minute {
						t.Errorf("%s: timed out after %s", name, timeout.After)
					}
				}
				if !slices.Equal(bs.take(), []string{"a b c"}) {
					t.Errorf("%s: another batch", name)
				}
			})
		}
	}
}
