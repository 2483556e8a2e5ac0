//go:build prove

package sqs

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/mq"
)

// killableClient is the HTTP client of a process that dies with its nth request, before or after SQS has handled it.
type killableClient struct {
	http.RoundTripper
	mu   sync.Mutex
	left int
	done bool
	end  context.CancelFunc
}

func (c *killableClient) RoundTrip(req *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	switch {
	case left > 0:
		return c.RoundTripper.RoundTrip(req)
	case left == 0 && c.done:
		_, _ = c.RoundTripper.RoundTrip(req) // the answer is lost
	}
	c.end()
	return nil, sqsfake.ErrReset
}

// A replay is killed at each of its requests, before or after SQS has handled it. Another process continues: every
// message ends in the queue, none stays in the DLQ, and the kill leaves at most one window of duplicates.
func TestReplayKilledAtAnyRequestLosesNothing(t *testing.T) {
	const n, window = 23, 5
	for _, done := range []bool{false, true} {
		for at, over := 3, false; !over; at++ { // two requests open the DLQ
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				opened := openTestDLQ(t, f, "orders", n, "")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cfg := f.config(Config{Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
				cfg.AWS.HTTPClient = &http.Client{Transport: &killableClient{RoundTripper: f.Connect(""), left: at + 2, done: done, end: cancel}}
				c, err := Open(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				q, err := c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: "orders"})
				if err == nil {
					task, err := deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: window})
					over = err == nil && task.Status == deadletter.StatusDone
					_ = q.Close()
				}
				continueElsewhere(t, opened)
				if history, err := deadletter.History(t.Context(), opened); err != nil || history[0].Counts.Replayed != n {
					t.Errorf("killed at request %d (done: %v): the task counts %+v, want %d: %v", at, done, history, n, err)
				}
				_ = opened.Close()
				seen := make(map[string]int)
				for _, m := range f.Messages("orders") {
					seen[uuidIn(&m)]++
				}
				if twice := len(f.Messages("orders")) - n; len(seen) != n || twice < 0 || twice > window {
					t.Errorf("killed at request %d (done: %v): %d of %d messages are in the queue, %d of them twice", at, done, len(seen), n, twice)
				}
				if left := f.Messages("orders-dlq"); len(left) > 0 {
					t.Errorf("killed at request %d (done: %v): %d messages are left in the DLQ", at, done, len(left))
				}
			})
		}
	}
}

// continueElsewhere lets another process finish the replay when the first one's lease has expired.
func continueElsewhere(t *testing.T, q deadletter.Queue) {
	t.Helper()
	for {
		history, err := deadletter.History(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(history) == 1 && !history[0].Unfinished() {
			return
		}
		var task deadletter.Task
		if len(history) == 0 {
			task, err = deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ben", Why: "test"})
		} else {
			task, err = deadletter.Resume(t.Context(), q, history[0].ID, deadletter.ResumeOptions{Who: "ben"})
		}
		if errors.Is(err, deadletter.ErrHeld) {
			_ = wait.For(t.Context(), defaultLease)
			continue
		}
		if err != nil || task.Status != deadletter.StatusDone {
			t.Fatalf("the second runner ended as %s: %v", task.Status, err)
		}
		return
	}
}

// A runner is killed between any two calls of its driver. For standard queues a test with ElasticMQ does this.
func TestDeadLetterKillsOnAFIFOQueue(t *testing.T) {
	m := &testHarness{fifo: true, fakes: make(map[string]*fake)}
	adaptertest.RunDeadLetterKills(t, m.toHarness(), m.deadLetters)
}
