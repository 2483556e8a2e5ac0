//go:build prove

package amqp_test

import (
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/integration/brokers"
)

// A handler runs, and its connection is lost, more often than the broker's limit allows.
func TestLostConnectionsDropNothing(t *testing.T) {
	t.Parallel()
	const drops = 23
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			line := &line{refused: new(sync.Map)}
			l := newLab(t, r, func(l *lab) {
				l.cfg.AMQP.Dial = line.dial
				l.declareQueue(limited(version))
			})
			l.declared()
			all := ids(5)
			l.put(all...)
			over := make(chan struct{})
			runs := 0 // guarded by l.mu
			l.consume(func(msg *message.Message, _ run) error {
				l.note(func() { runs++ })
				select {
				case <-msg.Context().Done():
					return msg.Context().Err()
				case <-over:
					return nil
				}
			})
			before := 0
			for i := range drops {
				l.await("a run on a new connection", func() bool { return runs > before && l.count("consuming") > i })
				l.note(func() { before = runs })
				line.drop()
				l.awaitChange("disconnected", i+1)
			}
			close(over)
			l.finished(all)
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.dead) > 0 {
				t.Errorf("dead letters: %v, want none", l.deadIDs())
			}
		})
	}
}
