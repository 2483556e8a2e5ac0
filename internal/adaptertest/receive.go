package adaptertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// receives tests middleware.Receiver: a program that requests messages has no handler.
func receives() []test {
	return []test{
		{name: "AReceivedAndAckedMessageIsCommitted", body: receivedAndAcked},
		{name: "AReceivedMessageWithoutAnAckComesAgain", needs: "KeepsAttempts", body: receivedAgain},
		{name: "AReceivedMessageThatIsNeverAckedGoesToTheDLQ", needs: "KeepsAttempts", body: neverAcked},
		{name: "ReceivedMessagesOfAKilledProcessComeBack", needs: "KeepsAttempts", body: receivedBeforeAKill},
		{name: "AReceiverRefusesOrderBlocking", needs: "OrderBlocking", body: refusesBlocking},
	}
}

// newReceiver opens a service and a receiver.
func (b *fixture) newReceiver(cfg Config) (*middleware.Receiver, *process) {
	b.Helper()
	r, p, err := b.tryReceiver(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return r, p
}

func (b *fixture) tryReceiver(cfg Config) (*middleware.Receiver, *process, error) {
	b.Helper()
	p := &process{b: b, journal: b.journal, done: make(chan struct{})}
	p.svc = b.open(b.group, cfg, p)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = func() {}
	close(p.done)
	b.Cleanup(cancel)
	r, err := middleware.NewReceiver(ctx, p.svc.Subscriber(), b.origin)
	return r, p, err
}

// When an invisible time is over, the work may go on: the message cannot keep its place.
func refusesBlocking(b *fixture) {
	r, _, err := b.tryReceiver(Config{Policy: inPlace.policy(3)})
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(bad.Problems) != 1 || bad.Problems[0].Field != "Policy.Order" {
		b.Errorf("a receiver %v with OrderBlocking: %v", r, err)
	}
}

// receiveOne receives one message and returns it with its id.
func (b *fixture) receiveOne(r *middleware.Receiver, invisible time.Duration) (id string, m *middleware.Received) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), Timeout)
	defer cancel()
	ms, err := r.Receive(ctx, 1, invisible)
	if err != nil {
		logLines(b.T, b.unended())
		b.Fatalf("received nothing: %v", err)
	}
	return stateOf(ms[0]).ID, ms[0]
}

func stateOf(m *middleware.Received) redeliver.State {
	st, _ := redeliver.FromContext(m.Message.Context())
	return st
}

func receivedAndAcked(b *fixture) {
	msgs, ids := numberedMessages(5)
	r, _ := b.newReceiver(Config{Policy: quickPolicy(3)})
	b.put(msgs...)
	for range ids { // if messages have an order, the next one comes after an ack
		id, m := b.receiveOne(r, Timeout)
		if err := m.Ack(); err != nil || !slices.Contains(ids, id) || string(m.Message.Payload) != id {
			b.Errorf("received %q with %q: %v", id, m.Message.Payload, err)
		}
	}
	b.awaitEnds(ids...)
	b.dead(0)
}

func receivedAgain(b *fixture) {
	const invisible = 500 * time.Millisecond
	r, _ := b.newReceiver(Config{Policy: quickPolicy(3)})
	b.put(namedMessages("slow")...)
	begun := time.Now()
	_, first := b.receiveOne(r, invisible)
	_, second := b.receiveOne(r, Timeout)
	if st := stateOf(second); st.Attempt() != 2 || time.Since(begun) < invisible {
		b.Errorf("came back after %s as attempt %d, want 2 after %s", time.Since(begun), st.Attempt(), invisible)
	}
	if err := first.Ack(); err == nil {
		b.Error("an Ack after the invisible time was accepted")
	}
	if err := second.ChangeInvisible(0); err != nil {
		b.Error(err)
	}
	_, third := b.receiveOne(r, invisible)
	if st := stateOf(third); st.Attempt() != 3 {
		b.Errorf("came back as attempt %d, want 3", st.Attempt())
	}
	if err := third.ChangeInvisible(Timeout); err != nil {
		b.Error(err)
	}
	timer := time.NewTimer(2 * invisible)
	defer timer.Stop()
	<-timer.C
	if err := third.Ack(); err != nil {
		b.Errorf("after %s, of %s: %v", 2*invisible, Timeout, err)
	}
	b.awaitEnds("slow")
	b.dead(0)
}

func neverAcked(b *fixture) {
	r, _ := b.newReceiver(Config{Policy: quickPolicy(1)})
	b.put(namedMessages("forgotten")...)
	for range 2 {
		b.receiveOne(r, 100*time.Millisecond)
	}
	b.awaitEnds("forgotten")
	b.checkDeadLetter(redeliver.ReasonTimeout, 2)
}

func receivedBeforeAKill(b *fixture) {
	r, p := b.newReceiver(Config{Policy: quickPolicy(3)})
	b.put(namedMessages("held")...)
	b.receiveOne(r, Timeout)
	p.kill()
	r2, _ := b.newReceiver(Config{Policy: quickPolicy(3)})
	_, held := b.receiveOne(r2, Timeout)
	if st := stateOf(held); st.Attempt() != 1 {
		b.Errorf("came back as attempt %d, want 1: a crash is not an attempt", st.Attempt())
	}
	if err := held.Ack(); err != nil {
		b.Error(err)
	}
	b.awaitEnds("held")
	b.dead(0)
}
