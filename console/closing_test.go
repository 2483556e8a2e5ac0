package console

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// blockedDLQ is a DLQ that can be claimed only when its gate is open.
type blockedDLQ struct {
	*stub
	gate    chan struct{}
	claimed atomic.Int32
	ended   atomic.Bool // the context of the request
}

func (q *blockedDLQ) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	q.claimed.Add(1)
	select {
	case <-q.gate:
	case <-ctx.Done():
		q.ended.Store(true)
		return nil, ctx.Err()
	}
	return q.stub.Claim(ctx, holder)
}

var anOperator = Actor{Name: "ann", Role: RoleOperator}

// An edit finishes even if the client is gone. A closing console waits for it for a limited time, because its queues
// are closed next.
func TestCloseWaitsForAnEdit(t *testing.T) {
	for name, opened := range map[string]bool{"it ends": true, "it takes too long": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &blockedDLQ{stub: newStub("q", 1), gate: make(chan struct{})}
				c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: &auditLog{}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, gone := context.WithCancel(t.Context())
				edited, closed := make(chan error, 1), make(chan struct{})
				go func() {
					_, err := c.svc.editMessage(ctx, anOperator, "q", deadletter.EditOptions{Position: "0", Body: []byte("new"), Why: "a test"})
					edited <- err
				}()
				synctest.Wait()
				gone()
				if err := <-edited; !errors.Is(err, context.Canceled) {
					t.Errorf("a client that has gone gets %v", err)
				}
				began := time.Now()
				go func() {
					defer close(closed)
					c.Close()
				}()
				synctest.Wait()
				select {
				case <-closed:
					t.Fatal("the console is closed, and its edit has the queue")
				default:
				}
				if opened {
					close(q.gate)
				}
				<-closed
				if took := time.Since(began); q.ended.Load() == opened || took > maxCloseTime || opened && took > 0 {
					t.Errorf("cancelled: %v, after %s", q.ended.Load(), took)
				}
			})
		})
	}
}

// A closed console starts nothing.
func TestAClosedConsoleStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &blockedDLQ{stub: newStub("q", 1), gate: make(chan struct{})}
		rec := &auditLog{}
		c, err := New(Config{Queues: []Queue{{Queue: q}}, Audit: rec})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		began := time.Now()
		_, edited := c.svc.editMessage(t.Context(), anOperator, "q", deadletter.EditOptions{Position: "0", Body: []byte("new"), Why: "a test"})
		_, replayed := c.svc.startReplay(t.Context(), anOperator, "q", deadletter.ReplayOptions{Why: "a test"}, 1)
		_, purged := c.svc.startPurge(t.Context(), anOperator, "q", deadletter.PurgeOptions{Why: "a test", Everything: true})
		resumed := c.svc.resumeTask(t.Context(), anOperator, "q", "t-1")
		for what, err := range map[string]error{"edit": edited, "replay": replayed, "purge": purged, "resume": resumed} {
			if !errors.Is(err, errClosing) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := q.claimed.Load(); n != 0 || time.Since(began) > 0 {
			t.Errorf("the DLQ was claimed %d times, in %s", n, time.Since(began))
		}
		failures := 0
		for _, l := range rec.lines {
			if l.Result == failed {
				failures++
			}
		}
		if failures != 4 {
			t.Errorf("the record says %q", rec.said())
		}
	})
}

// Requests that run while the console is being closed have ended when Close returns.
func TestNothingRunsWhenTheConsoleIsClosed(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}, Audit: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	var running atomic.Int32
	ready, done := make(chan struct{}, 8), make(chan struct{})
	for range cap(ready) {
		go func() {
			for first := true; ; first = false {
				err := c.svc.runInBackground(func() {
					running.Add(1)
					<-c.svc.ctx.Done()
					running.Add(-1)
				})
				if first {
					ready <- struct{}{}
				}
				if err != nil {
					done <- struct{}{}
					return
				}
			}
		}()
	}
	for range cap(ready) {
		<-ready
	}
	c.Close()
	if n := running.Load(); n != 0 {
		t.Errorf("%d still run", n)
	}
	for range cap(ready) {
		<-done
	}
}

// Responses have a timeout, but a stream of events continues.
func TestAnAnswerIsBoundedAndAStreamIsNot(t *testing.T) {
	c, err := New(Config{Queues: []Queue{{Queue: newStub("q", 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server := c.server(t.Context())
	if server.WriteTimeout < 3*maxReadTime+maxTaskStart || server.ReadTimeout <= 0 || server.ReadHeaderTimeout <= 0 {
		t.Errorf("an answer may take %s, a request %s, its head %s", server.WriteTimeout, server.ReadTimeout, server.ReadHeaderTimeout)
	}
	server.WriteTimeout = 50 * time.Millisecond
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	answer, err := http.Get("http://" + ln.Addr().String() + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	buf := make([]byte, 1<<10)
	for all := ""; strings.Count(all, "event: changed") < 2; { // at least one second apart
		c.svc.hub.notify()
		n, err := answer.Body.Read(buf)
		if err != nil {
			t.Fatalf("the stream ends with %v behind %q", err, all)
		}
		all += string(buf[:n])
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
