package delayqueue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// The end of a pause was told outside of the gate: while a slow sink heard of it, another
// message closed the gate and told so, and the end came after that. Whoever keeps the last
// that was said had an open gate then.
func TestChangesAreToldInTheirOrder(t *testing.T) {
	b := &broker{schedule: func(_ context.Context, try int) error {
		if try%2 == 1 {
			return errTheirs // of each message the first try
		}
		return nil
	}}
	sub, first := subscribe(b, t.Context())
	resuming, again := make(chan struct{}), make(chan struct{})
	resumed, paused := sync.OnceFunc(func() { close(resuming) }), 0
	var mu sync.Mutex
	var told []string
	sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
		c, ok := e.(redeliver.SubscriptionChanged)
		if !ok {
			return
		}
		if c.Change == redeliver.ChangeIntakeResumed {
			resumed()
			select {
			case <-again: // told before this, although it came to be behind it
			case <-time.After(100 * time.Millisecond):
			}
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, string(c.Change))
		if c.Change == redeliver.ChangeIntakePaused {
			if paused++; paused == 2 {
				close(again)
			}
		}
	})
	var all sync.WaitGroup
	all.Go(func() {
		if err := sub.Forward(first, later(t, sub, first), errOurs); err != nil {
			t.Error(err)
		}
	})
	<-resuming
	second := deliver(sub, t.Context())
	if err := sub.Forward(second, later(t, sub, second), errOurs); err != nil {
		t.Error(err)
	}
	all.Wait()
	if want := []string{"intake paused", "intake resumed", "intake paused", "intake resumed"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
