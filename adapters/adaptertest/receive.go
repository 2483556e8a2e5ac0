package adaptertest

import (
	"context"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// receives: a program that asks for messages, instead of a handler that gets them.
func receives() []test {
	return []test{
		{name: "WhatIsReceivedAndAckedIsCommitted", body: receivedAndAcked},
		{name: "WhatIsReceivedAndNotAckedComesAgain", needs: "KeepsAttempts", body: receivedAgain},
		{name: "WhatIsReceivedAndNeverAckedEndsInTheDLQ", needs: "KeepsAttempts", body: neverAcked},
		{name: "WhatADyingProcessHasReceivedComesBack", needs: "KeepsAttempts", body: receivedByTheDying},
	}
}

// receiver opens a service that receives.
func (b *bench) receiver(cfg Config) (*middleware.Receiver, *process) {
	b.Helper()
	p := &process{b: b, journal: b.journal, done: make(chan struct{})}
	p.svc = b.open(b.group, cfg, p)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = func() {}
	close(p.done)
	b.Cleanup(cancel)
	r, err := middleware.NewReceiver(ctx, p.svc.Subscriber(), b.origin)
	if err != nil {
		b.Fatal(err)
	}
	return r, p
}

// pull receives one message, and returns it with its id.
func (b *bench) pull(r *middleware.Receiver, invisible time.Duration) (id string, m *middleware.Received) {
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

func receivedAndAcked(b *bench) {
	msgs, ids := many(5)
	r, _ := b.receiver(Config{Policy: quick(3)})
	b.put(msgs...)
	for range ids { // where messages have an order, the next comes when one is acked
		id, m := b.pull(r, Timeout)
		if err := m.Ack(); err != nil || !slices.Contains(ids, id) || string(m.Message.Payload) != id {
			b.Errorf("received %q with %q: %v", id, m.Message.Payload, err)
		}
	}
	b.awaitEnds(ids...)
	b.dead(0)
}

func receivedAgain(b *bench) {
	const invisible = 500 * time.Millisecond
	r, _ := b.receiver(Config{Policy: quick(3)})
	b.put(named("slow")...)
	begun := time.Now()
	_, first := b.pull(r, invisible)
	_, second := b.pull(r, Timeout)
	if st := stateOf(second); st.Attempt() != 2 || time.Since(begun) < invisible {
		b.Errorf("came again after %s as attempt %d, want 2 after %s", time.Since(begun), st.Attempt(), invisible)
	}
	if err := first.Ack(); err == nil {
		b.Error("an Ack after the invisible time was taken")
	}
	if err := second.ChangeInvisible(0); err != nil {
		b.Error(err)
	}
	_, third := b.pull(r, Timeout)
	if st := stateOf(third); st.Attempt() != 3 {
		b.Errorf("came again as attempt %d, want 3", st.Attempt())
	}
	if err := third.Ack(); err != nil {
		b.Error(err)
	}
	b.awaitEnds("slow")
	b.dead(0)
}

func neverAcked(b *bench) {
	r, _ := b.receiver(Config{Policy: quick(1)})
	b.put(named("forgotten")...)
	for range 2 {
		b.pull(r, 100*time.Millisecond)
	}
	b.awaitEnds("forgotten")
	b.buried(redeliver.ReasonTimeout, 2)
}

func receivedByTheDying(b *bench) {
	r, p := b.receiver(Config{Policy: quick(3)})
	b.put(named("held")...)
	b.pull(r, Timeout)
	p.kill()
	r2, _ := b.receiver(Config{Policy: quick(3)})
	_, held := b.pull(r2, Timeout)
	if st := stateOf(held); st.Attempt() != 1 {
		b.Errorf("came back as attempt %d, want 1: a crash is no attempt", st.Attempt())
	}
	if err := held.Ack(); err != nil {
		b.Error(err)
	}
	b.awaitEnds("held")
	b.dead(0)
}
