//go:build prove

package amqp_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// crashLog records the events of several children.
type crashLog struct {
	*fixture
	commits  map[string]int // guarded by fixture.mu, like all fields
	attempts map[string]int // the largest number of charges at a commit
	dlq      map[string][]childEvent
	suspects map[string]bool
	ran      int
}

func newCrashLog(l *fixture) *crashLog {
	return &crashLog{
		fixture: l, commits: make(map[string]int), attempts: make(map[string]int),
		dlq: make(map[string][]childEvent), suspects: make(map[string]bool),
	}
}

func (w *crashLog) handle(s childEvent) {
	w.update(func() {
		switch s.What {
		case "run":
			w.ran++
		case "commit":
			w.commits[s.ID]++
			w.attempts[s.ID] = max(w.attempts[s.ID], s.Attempts)
		case "dead":
			w.dlq[s.ID] = append(w.dlq[s.ID], s)
		case "suspect":
			w.suspects[s.ID] = true
		}
	})
}

// countedEvery is a bound for the age of the broker's statistics of a quorum queue, which it updates every 5 s.
const countedEvery = 6 * time.Second

// One message kills its process with 100 others prefetched, on a quorum or a classic queue, while the broker drops
// connections. Only that message goes to the DLQ, and no other is charged.
func crashes(t *testing.T, r *brokers.Rabbit, classic, exit bool) {
	const drops, apart, maxStarts = 10, 50, 100 // apart: runs
	var forged amqp091.Table
	l := newFixture(t, r, func(l *fixture) {
		if classic {
			l.declareQueue(nil)
			forged = amqp091.Table{"x-delivery-count": int64(0)} // it passes this on
		}
	})
	l.declared()
	all := ids(600)
	killer := all[250]
	queues := []string{l.queue, l.queue + ".retry", l.queue + ".retry.suspects"}
	var msgs []amqp091.Publishing
	for _, id := range all {
		msgs = append(msgs, amqp091.Publishing{MessageId: id, DeliveryMode: amqp091.Persistent, Headers: forged, Body: []byte(id)})
	}
	l.write(l.queue, msgs...)
	w := newCrashLog(l)
	cfg := childConfig{URL: r.URL(), Queue: l.queue, Prefetch: 100, MaxInFlight: 50, Takes: 2 * time.Millisecond, Killer: killer, Exit: exit}
	quiet := func() bool { return len(w.commits) == len(all)-1 && len(w.dlq) > 0 }

	due, dropped := make(chan struct{}, drops), make(chan struct{})
	go func() {
		defer close(dropped)
		for range drops {
			select {
			case <-due:
			case <-t.Context().Done():
				return
			}
			if err := r.CloseAllConnections(context.Background(), "a test"); err != nil {
				t.Error(err)
			}
		}
	}()
	handle := func(s childEvent) {
		w.handle(s)
		w.update(func() {
			if s.What == "run" && w.ran%apart == 0 && w.ran <= drops*apart {
				due <- struct{}{}
			}
		})
	}
	starts := 0
	for over := false; !over; {
		starts++
		if starts > maxStarts { // usually 15 to 25: a process that dies before a confirm has isolated nothing
			t.Fatalf("%d processes died", maxStarts)
		}
		p := start(t, cfg, handle)
		dead := false
		go func() {
			<-p.over
			w.update(func() { dead = true })
		}()
		w.await("death or end", func() bool { over = quiet(); return over || dead })
		if over {
			<-dropped
			l.redial()
			for begun := time.Now(); over && time.Since(begun) < countedEvery; waitFor(100 * time.Millisecond) {
				for _, q := range queues { // kills have left copies, of the killer too
					over = over && l.awaitUnacked(q, 0, p.over)
				}
			}
		}
		if over {
			p.stop(t)
			for _, q := range queues { // a busy broker counts later
				over = over && l.ready(q) == 0
			}
		}
	}
	t.Logf("report: a message that kills its process: %d processes, %d drops, %d of 599 others suspected, %d runs", starts, drops, len(w.suspects), w.ran)
	for _, q := range queues {
		l.awaitReady(q, 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := w.dlq[killer]; len(w.dlq) != 1 || len(g) == 0 || slices.ContainsFunc(g, func(s childEvent) bool { return s.Reason != redeliver.ReasonCrashed }) {
		t.Errorf("dead letters are %v, want %s, crashed", w.dlq, killer)
	}
	// A process that dies before a confirm arrives leaves a copy, at most one of the killer.
	if n := l.ready(l.queue + ".dlq"); n < 1 || n > starts {
		t.Errorf("%d dead letters after %d processes", n, starts)
	}
	for id, n := range w.attempts {
		if n != 0 {
			t.Errorf("%s was charged %d attempts", id, n)
		}
	}
	if w.commits[killer] > 0 {
		t.Error("the killer was committed")
	}
}

// Five graceful restarts are no crashes and make no suspects, although the broker counts the returned messages like a
// crash.
func TestGracefulRestarts(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]childConfig{
		"prefetch 10 for 5 in flight":               {Prefetch: 10, MaxInFlight: 5, Takes: 10 * time.Millisecond},
		"prefetch as many as in flight, as ours is": {MaxInFlight: 100, Takes: 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { restartsInOrder(t, cfg) })
	}
}

func restartsInOrder(t *testing.T, cfg childConfig) {
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	all := ids(600)
	l.publishMessages(all...)
	w := newCrashLog(l)
	cfg.URL, cfg.Queue = l.rabbit.URL(), l.queue
	for i := 1; i <= 5; i++ {
		p := start(t, cfg, w.handle)
		w.await("progress", func() bool { return len(w.commits) >= 15*i })
		p.stop(t)
	}
	l.mu.Lock()
	left, begun := len(all)-len(w.commits), time.Now()
	l.mu.Unlock()
	p := start(t, cfg, w.handle)
	w.await("all commits", func() bool { return len(w.commits) == len(all) })
	took := time.Since(begun)
	p.stop(t)
	for _, q := range []string{"", ".retry", ".retry.suspects", ".dlq"} {
		l.awaitReady(l.queue+q, 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.Logf("report: 5 graceful restarts: %d suspected, %d runs of 600 messages; after the last, %d took %.1f s", len(w.suspects), w.ran, left, took.Seconds())
	if len(w.dlq) > 0 || len(w.suspects) > 0 {
		t.Errorf("dead letters: %v, suspects: %v", w.dlq, w.suspects)
	}
	for id, n := range w.attempts {
		if n != 0 || w.commits[id] != 1 {
			t.Errorf("%s was charged %d attempts, and committed %d times", id, n, w.commits[id])
		}
	}
}

// A suspect that is being fetched when the subscriber closes is not charged. Its return with the channel once counted
// as a crash.
func TestClosingChargesNoSuspect(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), nil)
	l.declared()
	suspects := l.queue + ".retry.suspects"
	l.putTo(suspects, ids(2000)...)
	for range 25 {
		l.open()
		l.mu.Lock()
		before := len(l.done)
		l.mu.Unlock()
		l.consume(func(*message.Message, run) error { return nil })
		l.await("progress", func() bool { return len(l.done) > before+2 })
		if err := l.client.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for left := 0; ; left++ {
		d, ok, err := l.raw.Get(suspects, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if left == 0 {
				t.Error("no suspect was left, so this test checks nothing")
			}
			return
		}
		if d.Redelivered {
			t.Fatalf("%s was charged a crash", d.MessageId)
		}
	}
}

// A suspect that loses its connection several times while its process lives has not crashed. Its handler's context
// ends at once, and the message comes back uncharged.
func lostConnectionsChargeNoSuspect(t *testing.T, r *brokers.Rabbit) {
	const drops = 5 // more than MaxCrashes
	l := newFixture(t, r, nil)
	l.declared()
	l.putTo(l.queue+".retry.suspects", "m")
	l.consume(func(msg *message.Message, _ run) error {
		l.mu.Lock()
		runs := len(l.runs["m"])
		l.mu.Unlock()
		if runs > drops {
			return nil
		}
		<-msg.Context().Done()
		return msg.Context().Err()
	})
	for i := 1; i <= drops; i++ {
		l.await("another run", func() bool { return len(l.runs["m"]) == i })
		if err := l.rabbit.CloseAllConnections(context.Background(), "a test"); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitEnds([]string{"m"})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) > 0 || l.runs["m"][drops].attempt != 1 {
		t.Errorf("runs are %+v, dead letters %+v; want attempt 1 and none", l.runs["m"], l.dead)
	}
}
