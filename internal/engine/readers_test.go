package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

func TestCloseEndsReadersAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := errors.New("closed")
		r := engine.NewReaders(refusal)
		opening, ended := make(chan struct{}), 0
		begun := make(chan error, 1)
		go func() { // Close is called during open, and waits for it
			begun <- r.Begin(t.Context(), func(context.Context) (func(context.Context), error) {
				<-opening
				return func(ctx context.Context) { <-ctx.Done(); ended++ }, nil
			})
		}()
		synctest.Wait()
		closed := make(chan bool, 1)
		go func() { closed <- r.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close did not wait for open")
		default:
		}
		close(opening)
		if err := <-begun; err != nil {
			t.Error(err)
		}
		if first := <-closed; !first || ended != 1 {
			t.Errorf("first %v, %d ended", first, ended)
		}
		if r.Close() {
			t.Error("the second Close returned true")
		}
		err := r.Begin(t.Context(), func(context.Context) (func(context.Context), error) { t.Error("opened"); return nil, nil })
		if !errors.Is(err, refusal) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Close ends the context of an open that waits for a broker.
func TestCloseEndsAnOpenThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := errors.New("closed")
		r := engine.NewReaders(refusal)
		type key struct{}
		begun := make(chan error, 1)
		go func() {
			begun <- r.Begin(context.WithValue(t.Context(), key{}, "ours"), func(ctx context.Context) (func(context.Context), error) {
				if ctx.Value(key{}) != "ours" {
					t.Error("the values of the context are missing")
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
		}()
		synctest.Wait()
		r.Close()
		if err := <-begun; !errors.Is(err, refusal) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestAReaderEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := engine.NewReaders(errors.New("closed"))
		broken := errors.New("no such topic")
		if err := r.Begin(t.Context(), func(context.Context) (func(context.Context), error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		if err := r.Begin(ctx, func(context.Context) (func(context.Context), error) {
			return func(ctx context.Context) { <-ctx.Done(); close(ended) }, nil
		}); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-ended
		r.Close() // and waits neither for that reader nor for the failed open
	})
}

func TestCloseAllReturnsWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // the bubble's clock moves on when all wait
		hold, done := make(chan struct{}), make(chan struct{})
		shut := func(hold chan struct{}) { <-hold }
		err := engine.CloseAll(ctx, []chan struct{}{hold, hold}, shut, func() { close(done) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(hold)
		<-done // in the background

		closed := false
		if err := engine.CloseAll(ctx, []chan struct{}{hold}, shut, func() { closed = true }); err != nil || !closed {
			t.Errorf("with a context that has ended before: %v, done %v", err, closed)
		}
	})
}
