//go:build prove

package amqp_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// ackConn calls acks before every write that contains an ack. The client's buffer is larger than anything in these
// tests.
type ackConn struct {
	net.Conn
	acks func(net.Conn)
}

// ack is the start of a basic.ack.
var ack = []byte{0, 60, 0, 80}

func (c *ackConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, ack) {
		c.acks(c.Conn)
	}
	return c.Conn.Write(b)
}

// watchAcks makes every connection of a fixture call acks before it writes one.
func (l *fixture) watchAcks(acks func(net.Conn)) {
	l.cfg.AMQP.Dial = func(network, address string) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, 10*time.Second)
		if err != nil {
			return nil, err
		}
		return &ackConn{conn, acks}, nil
	}
}

// While the ack of a settled suspect is on its way, nothing else begins. If that killed the process, the ack would be
// lost and the suspect charged.
func TestASuspectsAckComesFirst(t *testing.T) {
	t.Parallel()
	var armed, arrived atomic.Bool
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.watchAcks(func(net.Conn) {
			if armed.Load() {
				waitFor(300 * time.Millisecond) // time in which others could begin
				arrived.Store(true)
			}
		})
	})
	l.declared()
	finish := make(chan struct{})
	l.consume(func(msg *message.Message, _ run) error {
		if msg.UUID == "suspect" {
			<-finish
		} else if !arrived.Load() {
			t.Errorf("%s began before the suspect's ack was sent", msg.UUID)
		}
		return nil
	})
	l.putTo(l.queue+".retry.suspects", "suspect")
	l.await("the suspect's run", func() bool { return len(l.runs["suspect"]) == 1 })
	l.publishMessages("next")
	l.awaitReady(l.queue, 0) // the message is on its way to the client
	armed.Store(true)
	close(finish)
	l.awaitEnds([]string{"suspect", "next"})
}

// The connection is lost several times with a suspect's ack while the process lives. The suspect was once charged,
// because the ack counted as sent.
func TestALostAckChargesNoSuspect(t *testing.T) {
	t.Parallel()
	const drops = 5 // more than MaxCrashes
	var acks atomic.Int32
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.watchAcks(func(conn net.Conn) {
			if acks.Add(1) <= drops {
				_ = conn.Close()
			}
		})
	})
	l.declared()
	l.putTo(l.queue+".retry.suspects", "m")
	l.consume(func(*message.Message, run) error { return nil })
	l.await("acks", func() bool { return l.done["m"] > drops || len(l.dead) > 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) > 0 {
		t.Errorf("dead letters: %+v", l.dead)
	}
}

// When a subscriber closes, many acks are due at once, each behind a message that still waits. The channel to a quorum
// queue keeps those beyond 32 for later, so acked messages once came back when it closed.
func TestClosingLosesNoAck(t *testing.T) {
	t.Parallel()
	for _, r := range brokers.RequireRabbitMQs(t) {
		closingLosesNoAck(t, r)
	}
}

func closingLosesNoAck(t *testing.T, r *brokers.Rabbit) {
	const n = 300
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = steps(3, 30*time.Second)
		l.cfg.MaxRetriesInFlight, l.cfg.RetryPrefetch = n, 2*n
		l.cfg.DrainTimeout = time.Minute // a broker may stall for longer than the default of ten seconds
	})
	l.declared()
	level := l.queue + ".retry.30s"
	waiting := func(id string, due time.Time) amqp091.Publishing {
		st := redeliver.State{ID: id, Group: l.queue, Origin: l.queue, Attempts: 1, FirstFailed: time.Now(), LastFailed: time.Now(), Due: due}
		p := amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{}}
		for name, value := range driver.StateHeaders(&st) {
			p.Headers[name] = string(value)
		}
		return p
	}
	for i, id := range ids(2 * n) {
		due := time.Now()
		if i%2 == 0 {
			due = due.Add(6 * time.Second)
		}
		if err := l.raw.PublishWithContext(t.Context(), "", level, true, false, waiting(id, due)); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitReady(level, 2*n)
	finish := make(chan struct{})
	l.consume(func(*message.Message, run) error {
		<-finish
		return nil
	})
	l.await("runs", func() bool { return len(l.runs) == n })
	closed := make(chan error)
	go func() { closed <- l.client.Close(context.Background()) }()
	waitFor(200 * time.Millisecond) // the acks are due at the end, not earlier
	close(finish)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	l.open()
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitEnds(ids(2 * n))
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if again := l.duplicatesLocked(); again > 0 {
		t.Errorf("%d of %d acked messages came back", again, n)
	}
}
