package amqp_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// Messages that wait for an hour come back at once when their level is released, with their state. Another level is
// unchanged.
func TestAReleaseMovesALevelToTheRetryQueue(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const n = 600 // more than a window
			l := newFixture(t, b, func(l *fixture) {
				// Half an hour above the levels, for a copy that is written late: a level above the remaining wait is
				// not used.
				l.cfg.Policy = redeliver.Policy{
					Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Steps(90*time.Minute, 150*time.Minute), Levels: []time.Duration{time.Hour, 2 * time.Hour},
				}
			})
			l.consume(func(_ *message.Message, r run) error {
				if r.attempt < 3 {
					return errHandler
				}
				return nil
			})
			all := ids(n)
			l.publishMessages(all...)
			l.awaitReady(l.queue+".retry.1h", n)
			if moved, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{Topic: l.queue, Levels: []time.Duration{3 * time.Hour}}); err == nil || moved != 0 || !strings.Contains(err.Error(), ".retry.3h does not exist") {
				t.Errorf("a level that does not exist: %d moved, %v", moved, err)
			}
			reported := 0
			moved, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{
				Topic: l.queue, Levels: []time.Duration{time.Hour}, Moved: func(_ string, n int) { reported += n },
			})
			if err != nil || moved != n || reported != n {
				t.Fatalf("%d moved, %d reported, %v; want %d", moved, reported, err, n)
			}
			l.awaitReady(l.queue+".retry.2h", n) // each has failed again
			l.awaitReady(l.queue+".retry.1h", 0)
			if moved, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{Topic: l.queue}); err != nil || moved != n {
				t.Fatalf("all levels: %d moved, %v; want %d", moved, err, n)
			}
			l.awaitEnds(all)
			l.checkNothingEarly()
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, id := range all {
				if runs := l.runs[id]; len(runs) != 3 || runs[1].attempt != 2 || runs[2].attempt != 3 {
					t.Fatalf("%s ran as %+v", id, runs)
				}
			}
		})
	}
}

// A release that is killed in any window loses nothing. Each kill leaves at most two windows of duplicates, because a
// quorum queue may not have applied the previous window's acks.
func TestAKilledReleaseLosesNothing(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const n, kills, window = 4000, 5, 500
			l := newFixture(t, b, func(l *fixture) {
				l.cfg.Policy = redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}
			})
			l.declared()
			var waiting []amqp091.Publishing
			for _, id := range ids(n) {
				st := redeliver.State{ID: id, Group: l.queue, Origin: l.queue, Attempts: 1, Due: time.Now().Add(time.Hour), FirstFailed: time.Now(), LastFailed: time.Now()}
				headers := amqp091.Table{amqp.HeaderExchange: "", amqp.HeaderRoutingKey: l.queue, "tenant": "acme"}
				for name, value := range driver.StateHeaders(&st) {
					headers[name] = string(value)
				}
				waiting = append(waiting, amqp091.Publishing{Headers: headers, MessageId: id, DeliveryMode: amqp091.Persistent, Body: []byte(id)})
			}
			l.write(l.queue+".retry.1h", waiting...)
			for kill := range kills {
				released, err := l.killedRelease(kill)
				t.Logf("kill %d after %d messages: %v", kill, released, err)
			}
			seen := make(map[string]int)
			for began := time.Now(); len(seen) < n || l.ready(l.queue+".retry.1h") > 0; { // the messages in hand of a killed release are back a moment later
				if time.Since(began) > maxWait {
					t.Fatalf("%d of %d messages came back", len(seen), n)
				}
				if _, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{Topic: l.queue}); err != nil {
					t.Fatal(err)
				}
				for d := range l.drained(l.queue + ".retry") {
					seen[string(d.Body)]++
					due, err := time.Parse(time.RFC3339Nano, fmt.Sprint(d.Headers[redeliver.HeaderDue]))
					if err != nil || due.After(time.Now()) || d.Headers[redeliver.HeaderAttempt] != "1" || d.Headers["tenant"] != "acme" || d.MessageId != string(d.Body) {
						t.Fatalf("%s came back as %v", d.Body, d.Headers)
					}
				}
			}
			duplicates := 0
			for _, times := range seen {
				duplicates += times - 1
			}
			if duplicates > kills*2*window {
				t.Errorf("%d duplicates after %d kills, want at most %d", duplicates, kills, kills*2*window)
			}
			t.Logf("report: %s: %d messages, %d kills of a release: none lost, %d duplicates", version, n, kills, duplicates)
		})
	}
}

// killedRelease cuts the connections of a release after one or two windows, during the next step.
func (l *fixture) killedRelease(kill int) (int64, error) {
	l.Helper()
	line := &cuttableDialer{refused: &sync.Map{}}
	cfg := l.cfg
	cfg.AMQP.Dial, cfg.Sink = line.dial, redeliver.SinkFunc(func(redeliver.Event) {})
	c, err := amqp.Open(l.Context(), cfg)
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }() // it was killed
	before, stop := l.ready(l.queue+".retry"), make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		// The copies of a window exist before it is acked: the cut comes between the two, or among the acks.
		for wire := (&reconnectingConn{url: l.rabbit.URL()}); ; {
			select {
			case <-stop:
				wire.close()
				return
			default:
			}
			ready := 0
			_ = wire.do(l, func(ch *amqp091.Channel) error {
				q, err := ch.QueueDeclarePassive(l.queue+".retry", true, false, false, false, nil)
				ready = q.Messages
				return err
			})
			if ready > before+100*(kill+1) {
				line.cut()
				wire.close()
				return
			}
		}
	})
	moved, err := c.Operations().Release(l.Context(), mq.ReleaseConfig{Topic: l.queue})
	close(stop)
	killer.Wait()
	return moved, err
}

// drained gets all messages of a queue.
func (l *fixture) drained(queue string) iter.Seq[amqp091.Delivery] {
	return func(yield func(amqp091.Delivery) bool) {
		for {
			d, ok, err := l.raw.Get(queue, true)
			if err != nil {
				l.Fatal(err)
			}
			if !ok || !yield(d) {
				return
			}
		}
	}
}
