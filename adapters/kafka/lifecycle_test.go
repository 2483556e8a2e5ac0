package kafka_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/goleak"

	"github.com/redeliver/redeliver/adapters/kafka"
)

func TestMain(m *testing.M) {
	// These tests mostly wait, and go test runs only as many at once as there are processors.
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", "8"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	err := leaks()
	// A call of sarama that takes no context returns only after a few tries. One iteration takes about two seconds.
	for try := 0; err != nil && try < 10; try++ {
		err = leaks()
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		code = 1
	}
	os.Exit(code)
}

// leaks returns an error if goroutines are left, except one of sarama's metrics, which all clients of a process share,
// and the breaker of a producer without a broker, which sleeps for up to 10 s.
func leaks() error {
	return goleak.Find(goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
}

func TestClosingASubscriberLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders", "invoices").ListenAddrs()
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(-1)})
	pub, sub := c.Publisher(), c.Subscriber()
	out, err := sub.Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := pub.Close(); err != nil {
			t.Error(err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
		select {
		case _, open := <-out:
			if open {
				t.Error("a message after Close")
			}
		default:
			t.Error("Close returned before the channel was closed")
		}
	}
	// A Router closes its publishers while its handlers still run.
	if err := pub.Publish("invoices", message.NewMessage("1", nil)); err != nil {
		t.Errorf("a message that a handler publishes at the end is lost: %v", err)
	}
	if _, err := sub.Subscribe(t.Context(), "orders"); err == nil {
		t.Error("a closed subscriber subscribes")
	}
	// The client and its other users stay open.
	if err := c.Publisher().Publish("invoices", message.NewMessage("2", nil)); err != nil {
		t.Error(err)
	}
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	write(t, addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
	for range 2 {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if err := c.Publisher().Publish("invoices", message.NewMessage("3", nil)); err == nil {
		t.Error("a closed client publishes")
	}
	if _, err := c.Subscriber().Subscribe(t.Context(), "orders"); err == nil {
		t.Error("a closed client subscribes")
	}
}

func TestTheEndOfASubscribeContextClosesItsChannel(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), DrainTimeout: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	out, err := c.Subscriber().Subscribe(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	put(t, addrs, order("orders", "a"))
	msg := <-out // never answered
	cancel()
	eventually(t, "the channel is closed", func() bool {
		select {
		case _, open := <-out:
			return !open
		default:
			return false
		}
	})
	eventually(t, "the message's context ends", func() bool { return msg.Context().Err() != nil })
}

func TestOnKafkaSettledRecordsOfDelayTopicsAreDeleted(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	addrs := p.addrs
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(1)})
	kafka.SweepEvery(c, 100*time.Millisecond)
	route(t, c, p.topic, failFirst(0))
	recs, ids := orders(p.topic, 50)
	write(t, addrs, recs...)
	ev.awaitEnds(t, ids...)
	adm := kadm.NewClient(independent(t, addrs))
	delays := []string{p.ours("retry.100ms"), p.ours("retry")} // the latter for waits that are too short for a level when they are written
	eventually(t, "the delay topics are empty", func() bool {
		starts, err1 := adm.ListStartOffsets(t.Context(), delays...)
		ends, err2 := adm.ListEndOffsets(t.Context(), delays...)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		empty, n := true, int64(0)
		ends.Each(func(o kadm.ListedOffset) {
			s, _ := starts.Lookup(o.Topic, o.Partition)
			empty = empty && s.Offset == o.Offset
			n += o.Offset
		})
		return empty && n >= 50 && n <= 60 // a busy machine may have written one twice
	})
	starts, err := adm.ListStartOffsets(t.Context(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	starts.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("records of the origin were deleted: %s/%d begins at %d", o.Topic, o.Partition, o.Offset)
		}
	})
}
