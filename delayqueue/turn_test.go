package delayqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

func TestATurnWaitsForTheGateAndLetsOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, gate := delayqueue.NewTurn(), &delayqueue.Gate{}
		gate.Close()
		got := make(chan bool)
		go func() { got <- turn.Take(t.Context(), gate) }()
		synctest.Wait()
		if !turn.Begin() {
			t.Error("what belongs to another subscription waits for a suspect that cannot run")
		}
		gate.Open()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("the turn began beside a message that runs")
		default:
		}
		if turn.Begin() {
			t.Error("a message began while a suspect waits for its turn")
		}
		turn.Rest()
		if !<-got {
			t.Fatal("no turn")
		}
		turn.Give()
		if !turn.Begin() {
			t.Error("nothing begins after the turn")
		}
		turn.Rest()
	})
}

// A consumer that holds a message and reads no more kept every message of its client
// from beginning, for as long as a suspect waited.
func TestATurnDoesNotWaitForEverAtTheOthersExpense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, got := delayqueue.NewTurn(), make(chan bool, 1)
		if !turn.Begin() {
			t.Fatal("nothing begins")
		}
		began := time.Now()
		go func() { got <- turn.Take(t.Context(), &delayqueue.Gate{}) }()
		synctest.Wait()
		if turn.Begin() {
			t.Error("a message began while a suspect waits for its turn")
		}
		<-turn.Calm()
		if !turn.Begin() || time.Since(began) != 30*time.Second {
			t.Errorf("others go on after %v, want 30s", time.Since(began))
		}
		turn.Rest()
		turn.Rest()
		if !<-got || time.Since(began) != time.Minute {
			t.Errorf("the turn came after %v, want a minute", time.Since(began))
		}
		if turn.Begin() {
			t.Error("a message began beside a suspect")
		}
		turn.Give()
	})
}

// Handlers that take longer than a suspect waits at first would keep it from running for
// ever: one that begins while the others go on is still there when it waits again.
func TestATurnComesAmongHandlersThatTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, got, over := delayqueue.NewTurn(), make(chan bool, 1), make(chan struct{})
		for i := range 10 {
			go func() {
				for {
					select {
					case <-over:
						return
					case <-turn.Calm():
					}
					if turn.Begin() {
						<-time.After(45*time.Second + time.Duration(i)*5*time.Second)
						turn.Rest()
					}
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		go func() { got <- turn.Take(t.Context(), &delayqueue.Gate{}) }()
		select {
		case <-got:
		case <-time.After(10 * time.Minute):
			t.Error("no turn")
		}
		t.Logf("the turn came after %v", time.Since(began))
		close(over)
		turn.Give()
	})
}

func TestATurnThatIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn, gate := delayqueue.NewTurn(), &delayqueue.Gate{}
		gate.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if turn.Take(ctx, gate) {
			t.Fatal("taken behind a closed gate")
		}
		gate.Open()
		turn.Begin()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if turn.Take(ctx, gate) {
			t.Fatal("taken beside a message that runs")
		}
		turn.Rest()
		if !turn.Begin() {
			t.Error("nothing begins although no turn is taken")
		}
	})
}
