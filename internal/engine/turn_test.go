package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

// A suspect whose own gate is closed does not keep the turn from a suspect of another subscription.
func TestASuspectBehindAClosedGateLeavesTheTurnToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		turn, out, well := engine.NewTurn(), &engine.Gate{}, &engine.Gate{}
		out.Close()
		took := make(chan bool)
		go func() { took <- turn.Take(ctx, out) }()
		synctest.Wait()
		soon, end := context.WithTimeout(ctx, time.Hour)
		defer end()
		if !turn.Take(soon, well) {
			t.Error("a suspect of another subscription waits for the end of the outage")
		} else {
			turn.Give()
		}
		out.Open()
		if !<-took {
			t.Error("the suspect got no turn when the outage was over")
		}
		turn.Give()
		out.Close()
		go func() { took <- turn.Take(ctx, out) }()
		synctest.Wait()
		cancel()
		if <-took {
			t.Error("Take returned true after the end of its context")
		}
	})
}

// When a running message does not end, the others may begin again for as long as they have waited.
func TestASuspectLetsOthersBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, gate := engine.NewTurn(), &engine.Gate{}
		turn.Begin()
		took := make(chan bool)
		go func() { took <- turn.Take(t.Context(), gate) }()
		closed := time.Duration(0)
		for range 600 {
			<-time.After(time.Second)
			if turn.Closed() {
				closed += time.Second
			}
		}
		if closed < 5*time.Minute || closed > 7*time.Minute {
			t.Errorf("nothing began for %s of 10 minutes", closed)
		}
		turn.End()
		if !<-took || !turn.Closed() {
			t.Error("the suspect got no turn while nothing ran")
		}
		turn.Give()
	})
}

// Take waits for the gate of its subscription and for the running messages, and nothing else begins until Give.
func TestATurnWaitsForTheGateAndRunningMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, gate := engine.NewTurn(), &engine.Gate{}
		gate.Close()
		took := make(chan bool, 1)
		go func() { took <- turn.Take(t.Context(), gate) }()
		synctest.Wait()
		if !turn.Begin() {
			t.Error("a message of another subscription waits for a suspect that cannot run")
		}
		gate.Open()
		synctest.Wait()
		if len(took) > 0 || turn.Begin() {
			t.Error("the turn began while a message ran, or a message began while a suspect waits")
		}
		turn.End()
		if !<-took || turn.Begin() {
			t.Error("the suspect got no turn, or a message began while it ran")
		}
		turn.Give()
		if !turn.Begin() {
			t.Error("Begin returned false after Give")
		}
	})
}

// A Take that fails, because of the gate or of running messages, keeps nothing from beginning.
func TestAFailedTakeHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, gate := engine.NewTurn(), &engine.Gate{}
		for _, closed := range []bool{true, false} {
			if gate.Close(); !closed {
				gate.Open()
				turn.Begin()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if turn.Take(ctx, gate) {
				t.Errorf("taken, closed %t", closed)
			}
			if cancel(); !turn.Begin() {
				t.Errorf("Begin returned false although no suspect has the turn, closed %t", closed)
			}
			turn.End()
			if closed {
				gate.Open()
			}
		}
	})
}

// Handlers that take longer than the first wait of a suspect must not keep it from running: a handler that begins
// between two waits still runs when the suspect waits again.
func TestASuspectRunsAmongLongHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, took, over := engine.NewTurn(), make(chan bool, 1), make(chan struct{})
		var all sync.WaitGroup
		defer all.Wait()
		for i := range 10 {
			all.Go(func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(time.Second):
					}
					if turn.Begin() {
						<-time.After(45*time.Second + time.Duration(i)*5*time.Second)
						turn.End()
					}
				}
			})
		}
		<-time.After(2 * time.Second)
		go func() { took <- turn.Take(t.Context(), &engine.Gate{}) }()
		select {
		case <-took:
		case <-time.After(10 * time.Minute):
			t.Error("no turn")
		}
		close(over)
		turn.Give()
	})
}
