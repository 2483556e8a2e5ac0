package delayqueue_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/redeliver/redeliver/delayqueue"
)

// There are as many workers as there was work at once: one that is idle takes the next.
// All end with Close, and those that are at something when it is done.
func TestIdleWorkersTakeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const atOnce = 3
		ran, hold := 0, make(chan struct{}, atOnce)
		done := make(chan int)
		w := delayqueue.NewWorkers(func(n int) {
			<-hold
			done <- n
		})
		before := runtime.NumGoroutine()
		for range 20 {
			for n := range atOnce {
				w.Give(n)
			}
			synctest.Wait() // all three are at it
			for range atOnce {
				hold <- struct{}{}
			}
			for range atOnce {
				ran += 1 + <-done
			}
			synctest.Wait()
		}
		if ran != 20*(1+2+3) {
			t.Errorf("%d ran, want %d", ran, 20*(1+2+3))
		}
		if n := runtime.NumGoroutine() - before; n != atOnce {
			t.Errorf("%d workers, want %d", n, atOnce)
		}
		w.Give(0)
		synctest.Wait()
		w.Close()
		hold <- struct{}{}
		<-done
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d workers live on", n)
		}
	})
}
