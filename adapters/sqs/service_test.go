package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

var errHandler = errors.New("card declined")

// run is one attempt.
type run struct {
	id      string
	attempt int
	at      time.Duration // since the bubble began
	process string
}

func (r run) String() string { return fmt.Sprintf("%s#%d@%s", r.id, r.attempt, r.at) }

// bubble is a test in virtual time: a fake, and services that read from it.
type bubble struct {
	*testing.T
	*fake
	began time.Time

	mu     sync.Mutex
	runs   []run
	events []redeliver.Event
	load   func() observe.Load // of the latest subscription; nil when it has ended
}

func inBubble(t *testing.T, test func(b *bubble)) {
	t.Helper()
	inBubbleWith(t, sqsfake.Options{}, test)
}

// inBubbleWith is inBubble with another server.
func inBubbleWith(t *testing.T, o sqsfake.Options, test func(b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, fake: newFakeWith(o), began: time.Now()}
		defer b.Wait()
		test(b)
	})
}

func (b *bubble) Event(e redeliver.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// start reads a queue with a handler until the client is closed.
func (b *bubble) start(name, queue string, cfg Config, handler func(st redeliver.State, msg *message.Message) error) *mq.Client {
	b.Helper()
	cfg.Sink = b
	c := b.client(b.T, cfg)
	b.read(c, name, queue, handler)
	return c
}

// read reads a queue with an existing client.
func (b *bubble) read(c *mq.Client, name, queue string, handler func(st redeliver.State, msg *message.Message) error) {
	b.Helper()
	in, err := c.Subscriber().Subscribe(context.Background(), queue)
	if err != nil {
		b.Fatal(err)
	}
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		st, _ := redeliver.FromContext(msg.Context())
		at := time.Since(b.began)
		if time.Now().Before(st.Due) {
			b.Errorf("%s is early by %s", st.ID, time.Until(st.Due))
		}
		b.mu.Lock()
		b.runs = append(b.runs, run{st.ID, st.Attempt(), at, name})
		b.mu.Unlock()
		return nil, handler(st, msg)
	})
	go func() {
		for msg := range in {
			go func() {
				if _, err := handle(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}()
		}
	}()
}

func (b *bubble) close(c *mq.Client) {
	b.Helper()
	if err := c.Close(context.Background()); err != nil {
		b.Error(err)
	}
}

// advance advances virtual time.
func (b *bubble) advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func (b *bubble) ran(id string) (all []run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.runs {
		if id == "" || r.id == id {
			all = append(all, r)
		}
	}
	return all
}

// wantRuns checks a message's attempts and their start times, to the second.
func (b *bubble) wantRuns(id string, at ...time.Duration) {
	b.Helper()
	runs := b.ran(id)
	if len(runs) != len(at) {
		b.Fatalf("%s ran %v, want %d attempts", id, runs, len(at))
	}
	for i, r := range runs {
		if r.attempt != i+1 || r.at < at[i] || r.at > at[i]+1100*time.Millisecond {
			b.Errorf("%s: run %d is %s, want attempt %d within 1.1 s after %s", id, i, r, i+1, at[i])
		}
	}
}

func eventsOf[E redeliver.Event](b *bubble) (all []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e, ok := e.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

func steps(retries int, delays ...time.Duration) redeliver.Policy {
	return redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: retries, Backoff: redeliver.Steps(delays...)}
}

func failHandler(redeliver.State, *message.Message) error { return errHandler }
func succeed(redeliver.State, *message.Message) error     { return nil }

// A wait of 40 minutes takes three copies, and each is deleted when the next one exists.
func TestHopsKeepTheDueTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		c := b.start("one", "orders", Config{Policy: steps(2, 40*time.Minute+300*time.Millisecond, 95*time.Second)}, failHandler)
		b.put("orders", "a", "v", "", nil)
		b.advance(20 * time.Minute)
		if n := len(b.Messages("orders")); n != 1 {
			b.Errorf("%d copies wait, want 1", n)
		}
		b.advance(40 * time.Minute)
		b.wantRuns("a", 0, 40*time.Minute+300*time.Millisecond, 41*time.Minute+35300*time.Millisecond)
		if n := len(eventsOf[redeliver.Hopped](b)); n != 2 {
			b.Errorf("%d hops, want 2", n)
		}
		b.close(c)
		dead := b.Messages("orders-dlq")
		if len(b.Messages("orders")) != 0 || len(dead) != 1 || dead[0].Body != "v" {
			b.Fatalf("orders has %d, its DLQ %v", len(b.Messages("orders")), dead)
		}
		if st := stateOf(t, dead[0], "orders"); st.Reason != redeliver.ReasonExhausted || st.Attempts != 3 || !st.Source.Timestamp.Equal(b.began) || st.ID != "a" {
			b.Errorf("the dead letter has the state %+v", st)
		}
	})
}

// An entry of a successful request may have failed: one entry of each batch fails once, and one deletion many times.
// Nothing is lost, and nothing runs again.
func TestFailedEntriesAreRepeated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		tries := map[string]int{}
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			return &sqsfake.Fault{Entry: func(e map[string]any) string {
				key := call.Action + " " + fmt.Sprint(e["MessageBody"], e["ReceiptHandle"])
				tries[key]++
				if call.Action != "ChangeMessageVisibilityBatch" && tries[key] <= 2+len(key)%4 {
					return []string{"InternalError", "RequestThrottled"}[len(key)%2]
				}
				return ""
			}}
		})
		c := b.start("one", "orders", Config{Policy: steps(1, 2*time.Second)}, failHandler)
		for i := range 30 {
			b.put("orders", fmt.Sprint("m", i), fmt.Sprint("v", i), "", nil)
		}
		b.advance(5 * time.Minute)
		for i := range 30 {
			if runs := b.ran(fmt.Sprint("m", i)); len(runs) != 2 {
				b.Errorf("m%d ran %v, want twice", i, runs)
			}
		}
		b.close(c)
		if n, dead := len(b.Messages("orders")), len(b.Messages("orders-dlq")); n != 0 || dead != 30 {
			b.Errorf("%d messages remain, %d are in the DLQ", n, dead)
		}
	})
}

// A server fails for minutes in every way: 500, throttling, expired credentials, a broken connection, and requests
// that were carried out although their answers were lost.
func TestFaultyServerLosesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		n := 0
		c := b.start("one", "orders", Config{Policy: steps(2, time.Second, 5*time.Second)}, failHandler)
		for i := range 50 {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
		}
		b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
			if n++; time.Since(b.began) > 4*time.Minute {
				return nil
			}
			return []*sqsfake.Fault{
				nil, sqsfake.ServerError(), nil, sqsfake.Throttled(), {Status: 403, Code: "ExpiredTokenException"},
				nil, sqsfake.Reset(), nil, sqsfake.LostAnswer(), nil, {Status: 503, Code: "ServiceUnavailable", Carried: true}, nil,
			}[n%12]
		})
		b.advance(15 * time.Minute)
		b.close(c)
		dead := map[string]bool{}
		for _, m := range b.Messages("orders-dlq") {
			st := stateOf(t, m, "orders")
			dead[st.ID] = true
			if st.Reason != redeliver.ReasonExhausted || st.Attempts != 3 {
				b.Errorf("%s is in the DLQ after %d attempts: %s", st.ID, st.Attempts, st.Reason)
			}
		}
		if len(dead) != 50 || len(b.Messages("orders")) != 0 {
			b.Errorf("%d of 50 messages are in the DLQ, %d remain", len(dead), len(b.Messages("orders")))
		}
		for i := range 50 {
			seen := map[int]bool{}
			for _, r := range b.ran(fmt.Sprint("m", i)) {
				seen[r.attempt] = true
			}
			if !seen[1] || !seen[2] || !seen[3] || len(seen) != 3 {
				b.Errorf("m%d ran %v", i, b.ran(fmt.Sprint("m", i)))
			}
		}
		for _, e := range b.events {
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, "t0k3n") || strings.Contains(text, "s3cr3tk3y") {
				b.Errorf("%s contains a secret", text)
			}
		}
	})
}

// A handler that runs for hours keeps its message, with a visibility timeout of half a minute.
func TestHeartbeatHidesRunningMessages(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		p := steps(1, time.Second)
		p.Timeout = 5 * time.Hour
		c := b.start("one", "orders", Config{Policy: p}, func(redeliver.State, *message.Message) error {
			b.advance(time.Hour)
			return nil
		})
		other := b.start("two", "orders", Config{Policy: p}, succeed)
		b.put("orders", "a", "v", "", nil)
		b.advance(80 * time.Minute)
		b.wantRunsOnce("a")
		b.close(c)
		b.close(other)
		if n := len(b.Messages("orders")); n != 0 {
			b.Errorf("%d are left", n)
		}
	})
}

func (b *bubble) wantRunsOnce(id string) {
	b.Helper()
	if runs := b.ran(id); len(runs) != 1 {
		b.Errorf("%s ran %v, want once", id, runs)
	}
}

// A message that cannot be kept hidden is lost: its context ends, its attempt does not count, and it runs again when it
// comes back.
func TestLostMessageEndsItsContext(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		var ended atomic.Int64
		c := b.start("one", "orders", Config{Policy: steps(1, time.Second)}, func(_ redeliver.State, msg *message.Message) error {
			if ended.Load() == 0 {
				<-msg.Context().Done()
				ended.Add(1)
				if cause := context.Cause(msg.Context()); !errors.Is(cause, engine.ErrLost) {
					b.Errorf("the context ended with %v", cause)
				}
				return errors.New("cut short")
			}
			return nil
		})
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if (call.Action == "ChangeMessageVisibilityBatch" || call.Action == "ReceiveMessage" && len(b.ran("a")) > 0) && ended.Load() == 0 {
				return sqsfake.ServerError()
			}
			return nil
		})
		b.put("orders", "a", "v", "", nil)
		b.advance(2 * time.Minute)
		b.close(c)
		if runs := b.ran("a"); ended.Load() != 1 || len(runs) != 2 || runs[1].attempt != 1 {
			b.Errorf("it ran %v, %d contexts ended", runs, ended.Load())
		}
		if len(b.Messages("orders"))+len(b.Messages("orders-dlq")) != 0 {
			b.Error("something is left")
		}
	})
}

// A message without room for the state waits hidden, for longer than one copy could, and its body is unchanged in the
// DLQ.
func TestFullMessageWaitsHidden(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MaximumMessageSize", "4096")
		body := strings.Repeat("x", 4096-len(UUIDAttribute)-len(wire.StringType)-1)
		c := b.start("one", "orders", Config{Policy: steps(2, 30*time.Minute, time.Hour)}, failHandler)
		b.put("orders", "a", body, "", nil)
		b.advance(2 * time.Hour)
		b.wantRuns("a", 0, 30*time.Minute, 90*time.Minute)
		b.close(c)
		dead := b.Messages("orders-dlq")
		if len(dead) != 1 || dead[0].Body != body || dead[0].Attributes[StateAttribute].Type != "" || len(b.Messages("orders")) != 0 {
			b.Errorf("%d dead letters, want one, unchanged", len(dead))
		}
		if b.Count("SendMessageBatch") != 1 {
			b.Errorf("%d sends, want one: to the DLQ", b.Count("SendMessageBatch"))
		}
	})
}

// Another process does not have the state of a message that waits hidden. Its attempts start again, and it is not
// early.
func TestFullMessageStartsAgainInAnotherProcess(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "MaximumMessageSize", "4096")
		body := strings.Repeat("x", 4096-len(UUIDAttribute)-len(wire.StringType)-1)
		one := b.start("one", "orders", Config{Policy: steps(2, 30*time.Minute)}, failHandler)
		b.put("orders", "a", body, "", nil)
		b.advance(time.Minute)
		b.close(one)
		two := b.start("two", "orders", Config{Policy: steps(2, 30*time.Minute)}, failHandler)
		b.advance(29*time.Minute - 2*time.Second)
		if runs := b.ran("a"); len(runs) != 1 {
			b.Errorf("ran early: %v", runs)
		}
		b.advance(2 * time.Hour)
		b.close(two)
		if runs := b.ran("a"); len(runs) != 4 || runs[1].process != "two" || runs[1].attempt != 1 || runs[3].attempt != 3 {
			b.Errorf("ran %v", runs)
		}
	})
}
