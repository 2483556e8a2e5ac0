package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

// A suspect that waits for the outage of its own subscription to end holds up no suspect of another.
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
			t.Error("a suspect of another subscription waits for the outage")
		} else {
			turn.Give()
		}
		out.Open()
		if !<-took {
			t.Error("no turn when the outage is over")
		}
		turn.Give()
		out.Close()
		go func() { took <- turn.Take(ctx, out) }()
		synctest.Wait()
		cancel()
		if <-took {
			t.Error("a turn after the end of its context")
		}
	})
}

// While something runs that does not end, the others go on for as long as they have waited.
func TestASuspectLeavesTheOthersTheirTime(t *testing.T) {
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
		turn.Rest()
		if !<-took || !turn.Closed() {
			t.Error("no turn when nothing runs")
		}
		turn.Give()
	})
}
