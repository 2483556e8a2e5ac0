//go:build prove

package amqp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/integration/brokers"
)

// While a handler runs, its connection is lost more often than the broker's limit allows.
func TestLostConnectionsDropNothing(t *testing.T) {
	t.Parallel()
	const drops = 23
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			line := &cuttableDialer{refused: new(sync.Map)}
			l := newFixture(t, r, func(l *fixture) {
				l.cfg.AMQP.Dial = line.dial
				l.declareQueue(limited(version))
			})
			l.declared()
			all := ids(5)
			l.publishMessages(all...)
			over := make(chan struct{})
			runs := 0 // guarded by l.mu
			l.consume(func(msg *message.Message, _ run) error {
				l.update(func() { runs++ })
				select {
				case <-msg.Context().Done():
					return msg.Context().Err()
				case <-over:
					return nil
				}
			})
			before := 0
			for i := range drops {
				l.await("a run on a new connection", func() bool { return runs > before && l.countLocked("consuming") > i })
				l.update(func() { before = runs })
				line.drop()
				l.awaitChange("disconnected", i+1)
			}
			close(over)
			l.awaitEnds(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 {
				t.Errorf("dead letters: %v, want none", l.deadIDsLocked())
			}
		})
	}
}

// consumeStuck consumes with handlers that ignore their context, and returns when all slots are in use. Later
// handlers are counted in began. They end when over is closed.
func (l *fixture) consumeStuck(slots int) (began, over chan struct{}) {
	l.Helper()
	began, over = make(chan struct{}, 1000), make(chan struct{})
	l.consume(func(*message.Message, run) error {
		began <- struct{}{}
		<-over
		return nil
	})
	for range slots {
		<-began
	}
	return began, over
}

// Handlers that ignore their context keep their slots when their channel ends. Their messages come back and wait for
// a free slot, so that no more than MaxInFlight handlers run.
func TestHandlersOfALostChannelKeepTheirSlots(t *testing.T) {
	t.Parallel()
	const slots = 3
	line := &cuttableDialer{refused: new(sync.Map)}
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.AMQP.Dial, l.cfg.MaxInFlight = line.dial, slots
	})
	l.declared()
	l.publishMessages(ids(slots)...)
	began, over := l.consumeStuck(slots)
	defer close(over)
	line.drop()
	select {
	case <-began:
		t.Errorf("a handler began on the new channel while all %d slots were taken by handlers that still run", slots)
	case <-time.After(10 * time.Second): // it reconnects within one second
	}
}

// The same while such handlers use all slots: a message that comes back often is rewritten without a slot.
func TestLostConnectionsDropNothingBehindStuckHandlers(t *testing.T) {
	t.Parallel()
	const drops, slots = 50, 2
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			line := &cuttableDialer{refused: new(sync.Map)}
			l := newFixture(t, r, func(l *fixture) {
				l.cfg.AMQP.Dial, l.cfg.MaxInFlight, l.cfg.MaxRetriesInFlight = line.dial, slots, slots
				l.declareQueue(limited(version))
			})
			l.declared()
			all := ids(5)
			l.publishMessages(all...)
			began, over := l.consumeStuck(slots)
			for i := range drops {
				l.await("consuming", func() bool { return l.countLocked("consuming") > i })
				waitFor(100 * time.Millisecond) // time in which the broker delivers its messages
				line.drop()
				l.awaitChange("disconnected", i+1)
			}
			if n := len(began); n > slots { // first deliveries and retries have separate slots
				t.Errorf("%d handlers run in %d slots", n, slots)
			}
			close(over)
			l.awaitEnds(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 {
				t.Errorf("dead letters: %v, want none", l.deadIDsLocked())
			}
		})
	}
}

// Closing must end although a message that came back often cannot be written to its next place. It once waited for the
// confirm without a bound.
func closeWithoutAConfirm(t *testing.T, r *brokers.Rabbit) {
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.MaxInFlight, l.cfg.DrainTimeout = 1, 2*time.Second
		l.declareQueue(limited("3.10"))
	})
	l.declared()
	l.publishMessages("runs")
	sub := l.client.Subscriber()
	messages, err := sub.Subscribe(t.Context(), l.queue)
	if err != nil {
		t.Fatal(err)
	}
	running := <-messages
	l.publishMessages("last")
	for range 6 { // more often than redeliver returns a message before it rewrites it
		d, ok, err := l.raw.Get(l.queue, false)
		if err != nil || !ok {
			t.Fatalf("no message to return: %v", err)
		}
		if err := d.Nack(false, true); err != nil {
			t.Fatal(err)
		}
		l.awaitReady(l.queue, 1)
	}
	release, err := r.HoldLeader(t.Context(), l.queue+".retry")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	running.Ack()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for the confirm")
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitEnds([]string{"last"})
}
