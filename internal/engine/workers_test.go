package engine_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/redeliver/redeliver/internal/engine"
)

// goroutine returns the name of the calling goroutine.
func goroutine() string {
	room := make([]byte, 64)
	name, _, _ := bytes.Cut(room[:runtime.Stack(room, false)], []byte(" ["))
	return string(name)
}

// The number of workers is the largest number of items at once, and an idle worker takes the next item. Close ends all
// workers, even busy ones: the bubble waits for them.
func TestIdleWorkersTakeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 3
		hold, done := make(chan struct{}, atOnce), make(chan string)
		w := engine.NewWorkers(func(int) {
			<-hold
			done <- goroutine()
		})
		workers := make(map[string]int)
		for range 20 {
			for n := range atOnce {
				w.Submit(n)
			}
			synctest.Wait() // all three are running
			for range atOnce {
				hold <- struct{}{}
			}
			for range atOnce {
				workers[<-done]++
			}
			synctest.Wait()
		}
		if len(workers) != atOnce {
			t.Errorf("%d workers have run items: %v; want %d", len(workers), workers, atOnce)
		}
		w.Submit(0)
		synctest.Wait()
		w.Close()
		hold <- struct{}{}
		<-done
	})
}
