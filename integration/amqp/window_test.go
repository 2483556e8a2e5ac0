//go:build prove

package amqp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Messages on a level are read and held before they are due: a few large ones, or as many small ones as RetryPrefetch
// allows. Their number once did not depend on their size.
func TestHeldMessagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		size, headers, least, most int
		rabbit                     *brokers.Rabbit
	}{
		"large":               {100 << 10, 0, 1, 23, brokers.RequireRabbitMQ(t)}, // the first 16 and three quarters of a MiB
		"large on RabbitMQ 4": {100 << 10, 0, 1, 23, brokers.RequireRabbitMQ4(t)},
		"headers":             {0, 750, 1, 23, brokers.RequireRabbitMQ(t)}, // in memory as large
		"small":               {100, 0, 200, 268, brokers.RequireRabbitMQ(t)},
		"small on RabbitMQ 4": {100, 0, 200, 268, brokers.RequireRabbitMQ4(t)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFixture(t, row.rabbit, func(l *fixture) {
				l.cfg.Policy = steps(3, time.Minute)
				l.cfg.RetryPrefetch, l.cfg.RetryBytes = 200, 1<<20
			})
			l.declared()
			level := l.queue + ".retry.1m"
			all, later := ids(300), time.Now().Add(45*time.Second) // when all are there and the first have run
			for i, id := range all {
				due := time.Now()
				if i >= 32 { // the first ones show their size
					due = later
				}
				p := amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{}, Body: make([]byte, row.size)}
				for n := range row.headers {
					p.Headers[fmt.Sprint("h", n)] = true
				}
				st := redeliver.State{ID: id, Group: l.queue, Origin: l.queue, Attempts: 1, FirstFailed: time.Now(), LastFailed: time.Now(), Due: due}
				for name, value := range driver.StateHeaders(&st) {
					p.Headers[name] = string(value)
				}
				if err := l.raw.PublishWithContext(t.Context(), "", level, true, false, p); err != nil {
					t.Fatal(err)
				}
			}
			l.awaitReady(level, len(all))
			l.consume(func(*message.Message, run) error { return nil })
			l.await("the first", func() bool { return len(l.done) >= 32 })
			if held := l.awaitUnackedIn(level, row.least); held > row.most {
				t.Errorf("%d messages are held, want at most %d", held, row.most)
			}
			l.awaitEnds(all)
			l.checkNothingEarly()
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := l.duplicatesLocked(); n > 0 {
				t.Errorf("%d runs too many", n)
			}
		})
	}
}
