package delayqueue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// An outage: it keeps trying with growing pauses, the intake is shut, and it
// opens when the broker is back.
func TestPersistOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 40
		b := &broker{}
		sub, d := subscribe(b, t.Context())
		b.schedule = func(_ context.Context, try int) error {
			if shut := sub.Gate.Closed(); shut != (try > 1) {
				t.Errorf("try %d: the gate is closed: %v", try, shut)
			}
			if try <= outage {
				return errTheirs
			}
			return nil
		}
		start := time.Now()
		if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
			t.Fatal(err)
		}
		failed := events[redeliver.PublishFailed](b)
		if len(failed) != outage || len(b.times) != outage+1 || sub.Gate.Closed() {
			t.Fatalf("%d failures told, %d tries, closed %v", len(failed), len(b.times), sub.Gate.Closed())
		}
		// A pause is drawn from half to one and a half of 100 ms * 1.5^n, at most 10 s.
		middle := 100 * ms
		for i, e := range failed {
			if e.Try != i+1 || e.Where != "level" || !errors.Is(e.Err, errTheirs) || e.State.Attempts != 1 {
				t.Errorf("try %d: %+v", i+1, e)
			}
			if e.Retry < middle/2-1 || e.Retry > middle*3/2+1 {
				t.Errorf("try %d: a pause of %s, want about %s", i+1, e.Retry, middle)
			}
			if pause := b.times[i+1].Sub(b.times[i]); pause != e.Retry {
				t.Errorf("try %d: paused for %s, said %s", i+1, pause, e.Retry)
			}
			middle = min(middle*3/2, 10*second)
		}
		if time.Since(start) < 2*minute {
			t.Errorf("40 tries in %s: the pauses do not grow", time.Since(start))
		}
		log := strings.Join(b.seen(), ",")
		if strings.Count(log, "intake paused") != 1 || strings.Count(log, "intake resumed") != 1 {
			t.Errorf("one change each, not one for a try: %s", log)
		}
	})
}

// The gate belongs to all messages that are refused, and opens with the last.
func TestPersistOpensTheGateWithTheLastMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		var up [2]chan struct{}
		var wg sync.WaitGroup
		for i := range up {
			up[i] = make(chan struct{})
			d := deliver(sub, t.Context())
			wg.Go(func() {
				_, err := sub.Persist(d, &redeliver.State{ID: d.ID}, func(context.Context) (string, error) {
					select {
					case <-up[i]:
						return "there", nil
					default:
						return "there", errTheirs
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		<-time.After(minute)
		close(up[0])
		<-time.After(minute)
		if !sub.Gate.Closed() {
			t.Error("the gate is open while a message is still refused")
		}
		close(up[1])
		wg.Wait()
		if sub.Gate.Closed() {
			t.Error("the gate is closed after the last one")
		}
		changes := events[redeliver.SubscriptionChanged](b)
		if len(changes) != 2 || changes[0].Detail != "writing to there" || !errors.Is(changes[0].Err, errTheirs) || changes[1].Err != nil {
			t.Errorf("told %+v", changes)
		}
	})
}

// The session ends during a pause: no write after that, and the gate is opened.
func TestPersistGivesUpWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, end := context.WithCancel(t.Context())
		b := &broker{schedule: func(context.Context, int) error { return errTheirs }}
		sub, d := subscribe(b, session)
		returned := make(chan error, 1)
		go func() { returned <- sub.Forward(d, later(t, sub, d), errOurs) }()
		<-time.After(20*second + 1)
		synctest.Wait()
		tries, at := len(b.times), time.Now()
		end()
		if err := <-returned; !errors.Is(err, delayqueue.ErrAbandoned) {
			t.Errorf("returned %v", err)
		}
		<-time.After(minute)
		if len(b.times) != tries || tries < 3 || b.times[tries-1].After(at) || sub.Gate.Closed() || d.Forwarded() {
			t.Errorf("%d tries, then %d; closed %v, forwarded %v", tries, len(b.times), sub.Gate.Closed(), d.Forwarded())
		}
	})
}

// A lost connection fails the writes that are on their way and takes their messages along. Each of them said that the
// intake was paused, and in the same moment that it was not.
func TestPersistPausesNothingForALostMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, end := context.WithCancel(t.Context())
		b := &broker{schedule: func(context.Context, int) error {
			end()
			return errTheirs
		}}
		sub, d := subscribe(b, session)
		if err := sub.Forward(d, later(t, sub, d), errOurs); !errors.Is(err, delayqueue.ErrAbandoned) {
			t.Errorf("returned %v", err)
		}
		if changes := events[redeliver.SubscriptionChanged](b); len(changes) != 0 || sub.Gate.Closed() {
			t.Errorf("told %+v, closed %v", changes, sub.Gate.Closed())
		}
		if failed := events[redeliver.PublishFailed](b); len(failed) != 1 {
			t.Errorf("%d failures told, want the one that was", len(failed))
		}
	})
}

func TestSendTimeoutBoundsEachTry(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{
		{0, delayqueue.DefaultSendTimeout},
		{-1, delayqueue.DefaultSendTimeout},
		{3 * second, 3 * second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &broker{schedule: func(ctx context.Context, try int) error {
				began := time.Now()
				if try == 4 {
					return ctx.Err()
				}
				<-ctx.Done()
				if took := time.Since(began); took != c.want || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("try %d ended after %s with %v, want %s", try, took, ctx.Err(), c.want)
				}
				return ctx.Err()
			}}
			sub, d := subscribe(b, t.Context())
			sub.SendTimeout = c.set
			if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil || len(b.times) != 4 {
				t.Errorf("%v after %d tries", err, len(b.times))
			}
		})
	}
}

// Tries that begin within a short while share a context: each has its time, or
// hardly less.
func TestSendTimeoutOfManyTriesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, tries = 64 * second, 200
		contexts := make(map[context.Context]bool)
		var mu sync.Mutex
		b := &broker{schedule: func(ctx context.Context, _ int) error {
			began := time.Now()
			mu.Lock()
			contexts[ctx] = true
			mu.Unlock()
			<-ctx.Done()
			if took := time.Since(began); took > timeout || took <= timeout-second {
				t.Errorf("a try ended after %s, want %s or up to 1s less", took, timeout)
			}
			return nil
		}}
		sub, d := subscribe(b, t.Context())
		sub.SendTimeout = timeout
		var all sync.WaitGroup
		for range tries {
			all.Go(func() {
				if _, err := sub.Persist(d, &redeliver.State{}, func(ctx context.Context) (string, error) {
					return "there", b.schedule(ctx, 1)
				}); err != nil {
					t.Error(err)
				}
			})
			<-time.After(50 * ms)
		}
		all.Wait()
		if n := len(contexts); n < 10 || n > 11 { // 10 s of tries
			t.Errorf("%d contexts for %d tries", n, tries)
		}
	})
}

// A handler that was cancelled has still failed, and its message must go on.
func TestPersistIsDetachedFromTheMessagesContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{schedule: func(ctx context.Context, try int) error {
			if ctx.Value(key{}) != nil || delayqueue.FromContext(ctx) != nil {
				t.Error("the message's context is in the write's")
			}
			if try <= 3 {
				return errTheirs
			}
			return ctx.Err()
		}}
		sub, d := subscribe(b, context.WithValue(t.Context(), key{}, "value"))
		dec := later(t, sub, d)
		d.End(errOurs)
		if err := sub.Forward(d, dec, errOurs); err != nil || len(b.wrote) != 1 {
			t.Errorf("%v, %d written", err, len(b.wrote))
		}
		for i := range 3 {
			if pause := b.times[i+1].Sub(b.times[i]); pause < 50*ms {
				t.Errorf("no pause after try %d", i+1)
			}
		}
	})
}

func TestFingerprintIsReckonedOnce(t *testing.T) {
	sub, _ := subscribe(&broker{}, t.Context())
	if got := sub.Fingerprint(); got != delayqueue.Fingerprint(sub.Policy) || got == "" {
		t.Errorf("fingerprint %q", got)
	}
	if n := testing.AllocsPerRun(10, func() { sub.Fingerprint() }); n > 0 {
		t.Errorf("%v allocations for each", n)
	}
}
