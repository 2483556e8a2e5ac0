package fidelity

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// ErrDeclined is the error of an attempt that the test wants to fail.
var ErrDeclined = errors.New("declined")

// Unique returns a name that no other run has.
func Unique(name string) string { return name + "-" + watermill.NewShortUUID() }

// Consume runs a handler behind middleware.Retry until stop is called or the test ends. Then it closes the subscriber's
// client. It returns when the router runs.
func Consume(t *testing.T, topic string, sub message.Subscriber, closeClient func(context.Context) error, h message.NoPublishHandlerFunc) (stop func()) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("fail", topic, sub, h)
	var done sync.WaitGroup
	done.Go(func() {
		if err := router.Run(context.Background()); err != nil {
			t.Errorf("the router: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		_ = router.Close() // a handler that is cut off says nothing about the message
		if err := closeClient(context.Background()); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
	t.Cleanup(stop)
	select {
	case <-router.Running():
	case <-time.After(MaxWait):
		t.Fatal("the router does not run")
	}
	return stop
}

// Events is a [redeliver.Sink] that keeps the events of a worker.
type Events struct {
	mu  sync.Mutex
	all []redeliver.Event
}

// Event implements [redeliver.Sink].
func (ev *Events) Event(e redeliver.Event) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.all = append(ev.all, e)
}

// NoProblems fails the test if a write failed or the subscription was lost.
func (ev *Events) NoProblems(t *testing.T) {
	t.Helper()
	ev.mu.Lock()
	defer ev.mu.Unlock()
	for _, e := range ev.all {
		switch e := e.(type) {
		case redeliver.SubscriptionChanged:
			if e.Change != redeliver.ChangeConsuming {
				t.Errorf("the subscription is %s: %s %v", e.Change, e.Detail, e.Err)
			}
		case redeliver.PublishFailed:
			t.Errorf("writing %s to %s failed: %v", e.State.ID, e.Where, e.Err)
		}
	}
}

// Ignored counts the HeadersIgnored events by header.
func (ev *Events) Ignored() map[string]int {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	found := make(map[string]int)
	for _, e := range ev.all {
		if e, ok := e.(redeliver.HeadersIgnored); ok {
			for _, f := range e.Findings {
				found[f.Header]++
			}
		}
	}
	return found
}

// Within returns the next value of a channel, and fails the test if none arrives.
func Within[T any](t *testing.T, in <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-in:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return v
	case <-time.After(MaxWait):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}
