package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// abandonAll abandons all messages of the lane, as a source does when others may have them.
func (b *broker) abandonAll() {
	done := make(chan struct{})
	b.lane.Post(func() {
		b.mu.Lock()
		all := b.parsed
		b.parsed = nil
		b.mu.Unlock()
		for _, m := range all {
			b.lane.Abandon(m, engine.ErrLost)
		}
		close(done)
	})
	<-done
}

// Lost messages do not count as waiting. Otherwise a lane would read nothing until all of them were due.
func TestLostWaitingMessagesUseNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var ran atomic.Int64
		b.run(t, handle(func(context.Context, *record) error { ran.Add(1); return nil }), engine.LaneOptions[*record]{MaxAhead: 5, MaxWaiting: 10})
		for round := range 3 {
			for i := range 10 {
				b.in <- &record{id: fmt.Sprint(round, i), state: &redeliver.State{ID: "w", Attempts: 1, Due: time.Now().Add(12 * time.Hour)}}
			}
			synctest.Wait()
			if b.accepted != 0 {
				t.Errorf("Accept(%d) while 10 messages wait, want none", b.accepted)
			}
			b.abandonAll()
			synctest.Wait()
			if b.accepted != 5 {
				t.Errorf("Accept(%d) after the waiting messages were lost, want 5", b.accepted)
			}
		}
		b.publish("a")
		synctest.Wait()
		if ran.Load() != 1 {
			t.Errorf("%d ran", ran.Load())
		}
	})
}

// The lane calls Accept for every record, also for one that Parse refuses: a source counts records until then.
func TestAcceptFollowsARecordThatParseRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.settledBefore = true
		b.run(t, handle(func(context.Context, *record) error { return nil }), engine.LaneOptions[*record]{MaxAhead: 5})
		synctest.Wait()
		before := b.accepts
		b.publish("a")
		synctest.Wait()
		if b.accepts == before {
			t.Error("the lane took a message from the source and did not call Accept")
		}
	})
}

// A lane calls every function that Post has accepted, also while it ends.
func TestALaneCallsPostedFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.flush = func() { <-time.After(time.Second) }
		stop := b.run(t, handle(func(context.Context, *record) error { return nil }), engine.LaneOptions[*record]{})
		synctest.Wait()
		go stop()
		<-time.After(500 * time.Millisecond) // while it flushes
		var called atomic.Bool
		accepted := b.lane.Post(func() { called.Store(true) })
		<-time.After(time.Minute)
		if accepted && !called.Load() {
			t.Error("Post returned true, and the lane did not call the function")
		}
	})
}

// A source that is lost is not flushed, whether or not a message runs.
func TestALostSourceIsNotFlushed(t *testing.T) {
	for _, running := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBroker(redeliver.Policy{})
			stop := b.run(t, handle(func(ctx context.Context, _ *record) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, engine.ErrLost) {
					t.Errorf("the handler's context ended with %v", cause)
				}
				return nil
			}), engine.LaneOptions[*record]{})
			for range running {
				b.publish("a")
			}
			synctest.Wait()
			close(b.lost)
			stop()
			synctest.Wait()
			if b.flushed {
				t.Errorf("Flush was called after Lost while %d messages ran", running)
			}
		})
	}
}

// A message that is lost while it waits for its batch is not handled.
func TestABatchHasNoLostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var batches []string
		opt := batchOf(&batches, 3)
		b.run(t, opt, engine.LaneOptions[*record]{})
		b.publish("a")
		synctest.Wait()
		b.abandonAll()
		for _, id := range []string{"b", "c", "d"} {
			b.publish(id)
			synctest.Wait()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		settled, _ := b.all()
		if fmt.Sprint(batches) != "[bc d]" && fmt.Sprint(batches) != "[bcd]" || len(settled) != 3 {
			t.Errorf("batches %q, settled %q", batches, settled)
		}
	})
}

// A suspect that has the turn begins even if the gate has closed since then: all subscriptions of its client wait for
// it.
func TestASuspectThatHasItsTurnBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var ran atomic.Int64
		b.run(t, handle(func(context.Context, *record) error { ran.Add(1); return nil }), engine.LaneOptions[*record]{Exclusive: true})
		synctest.Wait()
		b.sub.Gate.Close()
		b.publish("a")
		synctest.Wait()
		if ran.Load() != 1 {
			t.Error("the suspect waits behind the closed gate")
		}
		b.sub.Gate.Open()
	})
}

func batchOf(batches *[]string, size int) engine.Options[*record] {
	return engine.Options[*record]{
		BatchConfig: redeliver.BatchConfig{Size: size, Timeout: 5 * time.Second}.WithDefaults(),
		Batch: func(_ *engine.Batch, all []*engine.BatchMember[*record]) error {
			s := ""
			for _, m := range all {
				s += m.Record.id
			}
			*batches = append(*batches, s)
			return nil
		},
	}
}

// All lanes of a subscriber that closes reach their drain timeout at one time, and notice it one after another. If a
// batch ends at that time, no other batch may begin with messages of the lanes that have not noticed it yet.
func TestNoBatchBeginsWhenTheDrainTimeoutIsOver(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			const lanes, size = 12, 2
			first := newBroker(redeliver.Policy{})
			var ran atomic.Int64
			e := engine.New(engine.Options[*record]{
				Sub: first.sub, Codec: first, Store: first,
				BatchConfig: redeliver.BatchConfig{Size: size, Timeout: time.Hour}.WithDefaults(),
				Batch: func(b *engine.Batch, _ []*engine.BatchMember[*record]) error {
					ran.Add(1)
					<-b.Done()
					return b.Err()
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range lanes {
				b := newBroker(redeliver.Policy{})
				b.publish("a")
				all.Go(func() {
					e.RunLane(ctx, context.Background(), b, engine.LaneOptions[*record]{DrainTimeout: 10 * time.Second}, nil)
				})
			}
			synctest.Wait()
			cancel()
			all.Wait()
			e.Close()
			if n := ran.Load(); n != 1 {
				t.Errorf("%d batches began, want 1", n)
			}
		})
	}
}

// A source that moves to another process lets long attempts end. The end of the process shortens that to the drain timeout.
func TestALaneDrainsForLongerWhenItsSourceMoves(t *testing.T) {
	for name, c := range map[string]struct {
		handler, hurryAfter, wantEnd time.Duration // after the drain has begun
		wantCut                      bool
	}{
		"the attempt ends":          {handler: 40 * time.Second, wantEnd: 40 * time.Second},
		"the attempt takes longer":  {handler: time.Hour, wantEnd: 50 * time.Second, wantCut: true},
		"the process ends":          {handler: time.Hour, hurryAfter: 15 * time.Second, wantEnd: 25 * time.Second, wantCut: true},
		"the process ends later":    {handler: time.Hour, hurryAfter: 45 * time.Second, wantEnd: 50 * time.Second, wantCut: true},
		"the process ends at first": {handler: time.Hour, hurryAfter: time.Nanosecond, wantEnd: 10 * time.Second, wantCut: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(redeliver.Policy{Timeout: redeliver.NoTimeout})
				drain := make(chan struct{})
				hurry := make(chan struct{})
				var cause error
				stop := b.run(t, handle(func(ctx context.Context, _ *record) error {
					<-drain
					select {
					case <-ctx.Done():
						cause = context.Cause(ctx)
					case <-time.After(c.handler):
					}
					return cause
				}), engine.LaneOptions[*record]{DrainTimeout: 10 * time.Second, MoveTimeout: 50 * time.Second, Hurry: hurry})
				b.publish("a")
				synctest.Wait()
				if c.hurryAfter > 0 {
					time.AfterFunc(c.hurryAfter, func() { close(hurry) })
				}
				close(drain)
				begin := time.Now()
				stop()
				synctest.Wait()
				if took := time.Since(begin).Truncate(time.Millisecond); took != c.wantEnd {
					t.Errorf("drained for %s, want %s", took, c.wantEnd)
				}
				if settled, _ := b.all(); len(settled) != 1 != c.wantCut || errors.Is(cause, engine.ErrDrained) != c.wantCut {
					t.Errorf("settled %v, cause %v; want cut %t", settled, cause, c.wantCut)
				}
			})
		})
	}
}
