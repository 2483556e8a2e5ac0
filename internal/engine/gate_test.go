package engine_test

import (
	"sync"
	"testing"

	"github.com/redeliver/redeliver/internal/engine"
)

func open(g *engine.Gate) bool {
	select {
	case <-g.Opened():
		return true
	default:
		return false
	}
}

func TestGateIsOpenFromTheStart(t *testing.T) {
	var g engine.Gate
	if g.Closed() || !open(&g) {
		t.Error("the zero gate is not open")
	}
}

func TestGateOpensWithTheLastMessage(t *testing.T) {
	var g engine.Gate
	for round := range 3 {
		for i := range 3 {
			if g.Close(); !g.Closed() || open(&g) {
				t.Fatalf("round %d, Close %d: closed %v, opened %v", round, i, g.Closed(), open(&g))
			}
		}
		waiting := g.Opened()
		for i, want := range []bool{false, false, true} { // only the last one opens it
			if g.Open(); g.Closed() == want || open(&g) != want {
				t.Fatalf("round %d, Open %d: closed %v, opened %v", round, i, g.Closed(), open(&g))
			}
		}
		select {
		case <-waiting:
		default:
			t.Fatalf("round %d: the waiting reader was not woken", round)
		}
	}
}

// Many messages close and open the gate while a reader waits for it: every wait ends.
func TestGateIsSafeForConcurrentUse(t *testing.T) {
	var g engine.Gate
	var messages, readers sync.WaitGroup
	over := make(chan struct{})
	for range 2 {
		readers.Go(func() {
			for {
				if g.Closed() {
					<-g.Opened()
				}
				select {
				case <-over:
					return
				default:
				}
			}
		})
	}
	for range 4 {
		messages.Go(func() {
			for range 200 {
				g.Close()
				g.Open()
			}
		})
	}
	messages.Wait()
	close(over)
	readers.Wait()
	if g.Closed() || !open(&g) {
		t.Errorf("closed %v, opened %v after as many opens as closes", g.Closed(), open(&g))
	}
}
