//go:build prove

package amqp_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// An ordered message that kills its process runs alone in its place, is charged there, and goes to the DLQ. The
// messages behind it wait until then.
func TestAKillerKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for i, kind := range slices.Sorted(maps.Keys(singleConsumerArgs)) {
		for j, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
			for _, attempt := range []int{1, 2} {
				if attempt > 1 && kind != "ours" {
					continue // differences that do not concern the broker
				}
				for version, r := range inTurn(t, i+j+attempt) {
					t.Run(fmt.Sprintf("%s on %s, %s, in attempt %d", order, version, kind, attempt), func(t *testing.T) {
						t.Parallel()
						killsInItsPlace(t, r, singleConsumerArgs[kind], order, attempt)
					})
				}
			}
		}
	}
}

func killsInItsPlace(t *testing.T, r *brokers.Rabbit, args amqp091.Table, order redeliver.Order, attempt int) {
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy.Order, l.cfg.Key = order, lastDigit
		if args != nil {
			l.declareQueue(args)
		}
	})
	l.declared()
	const before, maxStarts = 30, 20 // usually 9 processes are enough; a process that dies before its first message makes no progress
	all := ids(before + 10)          // the last one of each key is published when the others have ended
	killer := all[10]
	l.publishMessages(all[:before]...)
	w := newCrashLog(l)
	var ended []string // in order of their ends
	onEvent := func(s childEvent) {
		w.handle(s)
		w.update(func() {
			if s.What == "commit" || s.What == "dead" {
				ended = append(ended, s.ID)
			}
		})
	}
	cfg := childConfig{URL: r.URL(), Queue: l.queue, MaxInFlight: 20, Takes: 2 * time.Millisecond, Killer: killer, KillsAt: attempt, Order: order}
	starts := 0
	for over := false; !over; {
		if starts++; starts > maxStarts {
			t.Fatalf("%d processes died", maxStarts)
		}
		p := start(t, cfg, onEvent)
		dead := false
		go func() {
			<-p.over
			w.update(func() { dead = true })
		}()
		w.await("death or end", func() bool {
			over = len(w.commits) == before-1 && len(w.dlq) > 0
			return over || dead
		})
		if over {
			// Unacked messages of a dead process come back, and may not have run yet. They come before these.
			l.publishMessages(all[before:]...)
			w.await("the last ones", func() bool { return len(w.commits) == len(all)-1 })
			p.stop(t)
		}
	}
	for _, q := range []string{"", ".retry", ".retry.suspects", ".retry.place"} {
		l.awaitReady(l.queue+q, 0)
	}
	l.awaitReady(l.queue+".dlq", 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("report: a message that kills its process in its place: %d processes, %d runs of %d messages", starts, w.ran, len(all))
	if g := w.dlq[killer]; len(w.dlq) != 1 || len(g) == 0 || g[0].Reason != redeliver.ReasonCrashed || w.commits[killer] > 0 {
		t.Errorf("dead letters are %v, want %s alone, crashed", w.dlq, killer)
	}
	last := make(map[string]int) // by key: the place of the last one that ended for the first time
	seen := make(map[string]bool)
	for _, id := range ended {
		if seen[id] {
			continue
		}
		seen[id] = true
		key, at := "", slices.Index(all, id)
		if order == redeliver.OrderThroughRetries {
			key = id[len(id)-1:]
		}
		if before, ok := last[key]; ok && at < before {
			t.Errorf("%s ended after %s", id, all[before])
		}
		last[key] = at
	}
}

// An ordered suspect is never charged for lost connections or closed subscribers.
func TestASuspectInItsPlaceCountsOnlyCrashes(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name string
		lose func(*fixture, *cuttableDialer)
	}{
		{"lost connections", func(_ *fixture, line *cuttableDialer) { line.drop() }},
		{"closed subscribers", func(l *fixture, _ *cuttableDialer) {
			if err := l.client.Close(context.Background()); err != nil {
				l.Error(err)
			}
			l.open()
		}},
	} {
		for j, waits := range []bool{false, true} {
			for version, r := range inTurn(t, i+j) {
				t.Run(fmt.Sprintf("%s on %s, waiting %t", c.name, version, waits), func(t *testing.T) {
					t.Parallel()
					surviveInItsPlace(t, r, c.lose, waits)
				})
			}
		}
	}
}

func surviveInItsPlace(t *testing.T, r *brokers.Rabbit, lose func(*fixture, *cuttableDialer), waits bool) {
	const times = 5 // more than MaxCrashes
	line := &cuttableDialer{refused: new(sync.Map)}
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 100, Backoff: redeliver.Fixed(200 * time.Millisecond)}
		l.cfg.DrainTimeout, l.cfg.AMQP.Dial = 100*time.Millisecond, line.dial
	})
	l.declared()
	l.publishMessages("m", "behind")
	l.makeSuspects()
	handle := func(msg *message.Message, _ run) error {
		l.mu.Lock()
		runs := len(l.runs["m"])
		l.mu.Unlock()
		if msg.UUID == "behind" || runs > times {
			return nil
		}
		if waits {
			return errHandler
		}
		<-msg.Context().Done()
		return msg.Context().Err()
	}
	for i := 1; i <= times; i++ {
		l.consume(handle)
		l.await("another run", func() bool { return len(l.runs["m"]) >= i })
		lose(l, line)
	}
	l.consume(handle)
	l.awaitEnds([]string{"m", "behind"})
	l.awaitReady(l.queue+".retry.place", 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) > 0 {
		t.Errorf("runs are %+v, dead letters %+v; want none", l.runs["m"], l.dead)
	}
}
