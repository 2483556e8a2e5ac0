//go:build prove

package amqp_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// stall is how long a busy disk accepts no write: longer than a client once waited before it closed its channel. A
// client that closes stops waiting for the disk after two drain timeouts.
const stall = 4 * time.Second

// A quorum queue on a busy disk accepts 32 acks of a channel. The channel keeps the others until those are written.
// When it closed earlier, up to 117 of 150 acked messages came back.
func closeOnABusyDisk(t *testing.T, r *brokers.Rabbit) {
	const n = 300
	l := newFixture(t, r, func(l *fixture) { l.cfg.MaxInFlight, l.cfg.DrainTimeout = n, 3*time.Second })
	l.declared()
	all := ids(n)
	slow := make(map[string]bool) // every second message, so that the others are acked one by one
	for i := 0; i < n; i += 2 {
		slow[all[i]] = true
	}
	l.publishMessages(all...)
	finish := make(chan struct{})
	l.consume(func(msg *message.Message, _ run) error {
		<-finish
		if slow[msg.UUID] {
			<-msg.Context().Done() // it comes back
		}
		return msg.Context().Err()
	})
	l.await("runs", func() bool { return len(l.runs) == n })
	closed := make(chan error)
	go func() { closed <- l.client.Close(context.Background()) }()
	waitFor(200 * time.Millisecond) // for the consumer's end, which a busy disk would delay
	stallLog(t, r)
	close(finish)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	l.open()
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitEnds(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for id, runs := range l.runs {
		if !slow[id] && len(runs) > 1 {
			again++
		}
	}
	if again > 0 {
		t.Errorf("%d of %d acked messages came back", again, n/2)
	}
}

func stallLog(t *testing.T, r *brokers.Rabbit) {
	if err := r.StallLog(t.Context(), stall); err != nil {
		t.Error(err)
	}
}

// The same for a release that moves a whole level, and for one that leaves every second message there and acks the
// others one by one.
func releaseOnABusyDisk(t *testing.T, r *brokers.Rabbit) {
	for _, stays := range []int{0, 2} {
		const n = 600
		var once sync.Once
		l := newFixture(t, r, func(l *fixture) {
			l.cfg.Policy = redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}
			l.watchAcks(func(net.Conn) { once.Do(func() { stallLog(t, r) }) })
		})
		l.declared()
		level, stay := l.queue+".retry.1h", 0
		var waiting []amqp091.Publishing
		for i := range n {
			p := amqp091.Publishing{DeliveryMode: amqp091.Persistent}
			if stays > 0 && i%stays == 0 {
				p.Headers = unreadables()["a deep table"] // it cannot be copied
				stay++
			}
			waiting = append(waiting, p)
		}
		l.write(level, waiting...)
		if moved, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{Topic: l.queue}); err != nil || moved != int64(n-stay) {
			t.Fatalf("%d moved, %v; want %d", moved, err, n-stay)
		}
		l.write(level, amqp091.Publishing{DeliveryMode: amqp091.Persistent}) // after everything that the release returned
		if left := l.ready(level) - 1; left != stay {
			t.Errorf("%d messages are on the level, want %d", left, stay)
		}
	}
}
