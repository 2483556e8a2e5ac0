//go:build prove

package amqp_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// If a queue's leader does not answer in time, the broker reports the queue as empty and without consumers. A replay
// once ended at once as done, without a replayed message.
func leaderDoesNotAnswer(t *testing.T, r *brokers.Rabbit) {
	d := newFailingService(t, r, nil)
	dead := []string{"a", "b", "c"}
	d.makeDeadLetters(dead...)
	q, _ := d.openDead()
	defer func() { _ = q.Close() }()

	release, err := r.HoldLeader(t.Context(), d.queue+".dlq")
	if err != nil {
		t.Fatal(err)
	}
	// The time of an answer decides whether a count of 0 is believed, so one of several counts is enough.
	refuses := func(what string, count func() error) {
		var err error
		for range 10 {
			if err = count(); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), "is not counted") {
			t.Errorf("%s returned %v", what, err)
		}
	}
	refuses("Count", func() error {
		_, _, err := q.Count(t.Context())
		return err
	})
	refuses("a scan", func() error {
		for _, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if got := idsInDLQ(t, q); !slices.Equal(slices.Sorted(slices.Values(got)), dead) {
		t.Errorf("the DLQ has %q, want %q", got, dead)
	}
}

// slowConn is a connection to a distant broker.
type slowConn struct {
	net.Conn
	way time.Duration
}

func (c slowConn) Write(b []byte) (int, error) {
	<-time.After(c.way)
	return c.Conn.Write(b)
}

// A slow answer does not mean a missing leader if every answer is slow.
func TestADistantBrokerMayHaveEmptyQueues(t *testing.T) {
	t.Parallel()
	d := newFailingService(t, brokers.RequireRabbitMQ(t), nil)
	d.declared()
	c, err := amqp.Open(t.Context(), amqp.Config{
		URLs: []string{d.rabbit.URL()}, Topology: amqp.Topology{Queue: func(string) string { return d.queue }},
		AMQP: amqp091.Config{Dial: func(network, addr string) (net.Conn, error) {
			conn, err := net.Dial(network, addr)
			return slowConn{conn, 300 * time.Millisecond}, err
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: d.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	if n, _, err := q.Count(t.Context()); n != 0 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
	if got := idsInDLQ(t, q); len(got) > 0 {
		t.Errorf("an empty DLQ has %q", got)
	}
}
