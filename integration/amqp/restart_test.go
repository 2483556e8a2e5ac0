//go:build prove

package amqp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/integration/brokers"
)

func appRestarts(t *testing.T, r *brokers.Rabbit) {
	restartsUnderTraffic(t, r, func(ctx context.Context) error {
		if err := r.StopApp(ctx); err != nil {
			return err
		}
		return r.StartApp(ctx)
	})
}

func nodeIsKilled(t *testing.T, r *brokers.Rabbit) {
	restartsUnderTraffic(t, r, func(ctx context.Context) error {
		if err := r.Kill(); err != nil {
			return err
		}
		return r.Start(ctx)
	})
}

// The broker stops, or is killed, while messages are published, run and retried. Every published message is handled.
func restartsUnderTraffic(t *testing.T, r *brokers.Rabbit, restart func(context.Context) error) {
	l := newFixture(t, r, func(l *fixture) { l.cfg.Policy = steps(5, 300*time.Millisecond) })
	l.consume(func(msg *message.Message, r run) error {
		waitFor(2 * time.Millisecond)
		if strings.HasSuffix(msg.UUID, "3") && r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	l.awaitChange("consuming", 1)
	if err := r.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := ids(3000)
	const publishers = 8 // a single publisher would wait for each confirm
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	var publishing sync.WaitGroup
	for first := range publishers {
		publishing.Go(func() { // until each is confirmed
			for i := first; i < len(all); i += publishers {
				for {
					<-pace.C
					if l.client.Publisher().Publish(l.queue, message.NewMessage(all[i], nil)) == nil {
						break
					}
				}
			}
		})
	}
	l.await("traffic", func() bool { return len(l.done) > 300 })
	begun := time.Now()
	if err := restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	away := time.Since(begun)
	publishing.Wait()
	l.awaitEnds(all)
	l.checkNothingEarly()
	for _, q := range []string{"", ".retry", ".retry.suspects", ".dlq"} {
		l.redial()
		l.awaitReady(l.queue+q, 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("report: the broker was down for %.1f s under traffic: 0 of 3,000 lost, %d run twice", away.Seconds(), l.duplicatesLocked())
	if len(l.dead) > 0 {
		t.Errorf("dead letters: %v", l.deadIDsLocked())
	}
	if n := l.duplicatesLocked(); n > 600 {
		t.Errorf("%d runs too many", n)
	}
}
