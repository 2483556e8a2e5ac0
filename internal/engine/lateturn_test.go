package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A suspect waits for handlers that still run after their timeouts, also for that of an earlier suspect. If one of them
// killed the process, the suspect would be charged. Other messages wait for 30 s at first.
func TestASuspectWaitsForHandlersThatOutliveTheirTimeouts(t *testing.T) {
	for name, c := range map[string]struct {
		order redeliver.Order
		alone bool // the handler is that of a suspect
	}{
		"of another message":          {redeliver.OrderFirstAttempts, false},
		"of another suspect":          {redeliver.OrderFirstAttempts, true},
		"of a message that was first": {redeliver.OrderBlocking, false},
		"of a suspect that was first": {redeliver.OrderBlocking, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBroker(redeliver.Policy{MaxRetries: redeliver.NoRetries, Timeout: time.Second, Order: c.order})
				b.sub.Turn, b.sub.KeepsPlace = engine.NewTurn(), c.order == redeliver.OrderBlocking
				var mu sync.Mutex
				running := make(map[string]bool)
				var suspectAt, otherAt time.Duration
				g := &funcGater{
					begin: func(m *driver.Message[*record]) engine.Admission {
						m.Alone = c.alone
						return engine.Begins
					},
					end: func(m *driver.Message[*record], _ engine.Ending) {
						if m.Alone {
							b.sub.Turn.Give()
						}
					},
				}
				b.run(t, handle(func(_ context.Context, r *record) error {
					mu.Lock()
					defer mu.Unlock()
					if r.id == "other" {
						otherAt = time.Since(b.begun)
						return nil
					}
					running[r.id] = true
					mu.Unlock()
					<-time.After(50 * time.Second) // it ignores the end of its context
					mu.Lock()
					running[r.id] = false
					return errors.New("late")
				}), engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{g}})
				if c.alone && !b.sub.Turn.Take(t.Context(), &b.sub.Gate) {
					t.Fatal("no turn")
				}
				b.publish("slow")
				<-time.After(5 * time.Second) // it has timed out, and is settled
				synctest.Wait()
				if _, dead := b.all(); dead["slow"].Reason != redeliver.ReasonTimeout {
					t.Fatalf("dead %v", dead)
				}
				c.alone = false
				go func() {
					if b.sub.Turn.Take(t.Context(), &b.sub.Gate) {
						mu.Lock()
						defer mu.Unlock()
						if suspectAt = time.Since(b.begun); running["slow"] {
							t.Error("a suspect runs beside a handler that has timed out")
						}
						b.sub.Turn.Give()
					}
				}()
				synctest.Wait()
				b.publish("other")
				<-time.After(5 * time.Minute)
				synctest.Wait()
				if suspectAt < 50*time.Second || suspectAt > 2*time.Minute || otherAt != 35*time.Second {
					t.Errorf("the suspect ran after %s, and another message after %s", suspectAt, otherAt)
				}
				if n := b.sub.Turn.Busy(); n != 0 {
					t.Errorf("%d are said to run", n)
				}
				if settled, _ := b.all(); !slices.Contains(settled, "other") {
					t.Errorf("settled %v", settled)
				}
			})
		})
	}
}
