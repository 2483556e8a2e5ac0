package kafkashare_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
)

// BenchmarkShare makes the numbers of docs/explanation/share-groups.md. A topic has 4 partitions, and its records 1 KiB.
// Run it with -benchtime 1x.
func BenchmarkShare(b *testing.B) {
	const records = 50_000
	for _, clients := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("success/%d members", clients), func(t *testing.B) {
			measure(t, records, redeliver.Policy{}, shareOf(clients, 128), nil)
		})
	}
	b.Run("success/adapters-kafka", func(t *testing.B) { measure(t, records, redeliver.Policy{}, kafkaOf(128), nil) })
	failing := redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Second, time.Second, time.Second)}
	for name, open := range map[string]opener{"share, 4 members": shareOf(4, 128), "adapters-kafka": kafkaOf(128)} {
		b.Run("all fail/"+name, func(t *testing.B) { measure(t, 20_000, failing, open, errors.New("card declined")) })
	}
}

// BenchmarkShareKill kills a process that holds messages, beside another one.
func BenchmarkShareKill(b *testing.B) {
	for _, clients := range []int{1, 4} {
		b.Run(fmt.Sprintf("2 processes of %d members", clients), func(t *testing.B) {
			topic, group := makeRecords(t, 64)
			var dying cutter
			held := make(chan struct{}, 64)
			again := make(chan time.Time, 64)
			for _, dies := range []bool{true, false} {
				cfg := kafkashare.Config{Brokers: brokers.RequireKafka(t), Group: group, Clients: clients, MaxInFlight: 8, DrainTimeout: time.Second, Sink: redeliver.SinkFunc(func(redeliver.Event) {})}
				if dies {
					cfg.Options = []kgo.Opt{kgo.Dialer(dying.dial)}
				}
				c, err := kafkashare.Open(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close(context.Background()) }()
				messages, err := c.Subscriber().Subscribe(t.Context(), topic)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					for msg := range messages {
						if dies {
							held <- struct{}{} // and it is never acked
							continue
						}
						again <- time.Now()
						msg.Ack()
					}
				}()
				if dies { // it gets all partitions
					for range 8 {
						<-held
					}
				}
			}
			pause := time.NewTimer(15 * time.Second) // the other one joins, and handles what it can
			<-pause.C
			before := len(again)
			for len(again) > 0 {
				<-again
			}
			killed := time.Now()
			dying.cut()
			var last time.Time
			for range 64 - before {
				select {
				case last = <-again:
				case <-time.After(2 * time.Minute):
					t.Fatal("messages did not come again")
				}
			}
			t.Logf("report: %s: %d messages came again, the last %s after the kill", t.Name(), 64-before, last.Sub(killed).Round(10*time.Millisecond))
		})
	}
}

// cutter dials until it is cut.
type cutter struct {
	mu    sync.Mutex
	conns []net.Conn
	over  bool
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.over {
		_ = conn.Close()
		err = net.ErrClosed
	}
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// opener opens a subscriber of a group.
type opener func(t testing.TB, group string, p redeliver.Policy, sink redeliver.Sink) message.Subscriber

func shareOf(clients, inFlight int) opener {
	return func(t testing.TB, group string, p redeliver.Policy, sink redeliver.Sink) message.Subscriber {
		t.Helper()
		c, err := kafkashare.Open(t.Context(), kafkashare.Config{Brokers: brokers.RequireKafka(t), Group: group, Policy: p, Sink: sink, Clients: clients, MaxInFlight: inFlight})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c.Subscriber()
	}
}

func kafkaOf(inFlight int) opener {
	return func(t testing.TB, group string, p redeliver.Policy, sink redeliver.Sink) message.Subscriber {
		t.Helper()
		c, err := kafka.Open(t.Context(), kafka.Config{Brokers: brokers.RequireKafka(t), Group: group, Policy: p, Sink: sink, MaxInFlight: inFlight})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return c.Subscriber()
	}
}

// measure writes records, and then handles them all with one answer.
func measure(t testing.TB, records int, p redeliver.Policy, open opener, answer error) {
	t.Helper()
	topic, group := makeRecords(t, records)
	var ended atomic.Int64
	done := make(chan struct{})
	sink := redeliver.SinkFunc(func(e redeliver.Event) {
		switch e.(type) {
		case redeliver.Committed, redeliver.DeadLettered:
			if ended.Add(1) == int64(records) {
				close(done)
			}
		}
	})
	sub := open(t, group, p, sink)
	messages, err := sub.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var late []time.Duration
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		if st, _ := redeliver.FromContext(msg.Context()); !st.Due.IsZero() {
			mu.Lock()
			late = append(late, time.Since(st.Due))
			mu.Unlock()
		}
		return nil, answer
	})
	var first time.Time
	var once sync.Once
	go func() {
		for msg := range messages {
			once.Do(func() { first = time.Now() })
			go func() {
				if _, err := handle(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}()
		}
	}()
	began := time.Now()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Fatalf("only %d of %d messages have ended", ended.Load(), records)
	}
	took := time.Since(first)
	text := fmt.Sprintf("report: %s: %d messages in %s after the first, %.0f/s; the first after %s", t.Name(), records, took.Round(time.Millisecond), float64(records)/took.Seconds(), first.Sub(began).Round(100*time.Millisecond))
	if slices.Sort(late); len(late) > 0 {
		text += fmt.Sprintf("; retries late p50 %s, p99 %s", late[len(late)/2].Round(time.Millisecond), late[len(late)*99/100].Round(time.Millisecond))
	}
	t.Log(text)
}

// makeRecords writes records of 1 KiB to a new topic.
func makeRecords(t testing.TB, n int) (topic, group string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers.RequireKafka(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topic = fmt.Sprintf("measure-%d", time.Now().UnixNano())
	kafkatest.MakeTopic(t, kadm.NewClient(cl), 4, nil, topic)
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: make([]byte, 1024)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return topic, "group-" + topic
}
