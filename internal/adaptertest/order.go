package adaptertest

import (
	"fmt"
	"sync"
	"time"
)

// orders tests which messages may run at once.
func orders() []test {
	return []test{
		{name: "MaxInFlightBoundsWhatRunsAtOnce", body: maxInFlight},
		{name: "ASlowMessageBlocksNoOther", needs: "NoHeadOfLineBlocking", body: slow},
		{name: "MessagesOfOneKeyRunInOrder", needs: "OrderFirstAttempts", body: keyOrder},
		{name: "OnlyAFailedMessageIsOvertakenByItsKey", needs: "OrderFirstAttempts", body: overtaken},
	}
}

// concurrency counts what runs at once.
type concurrency struct {
	mu           sync.Mutex
	now, maximum int
	want         int
	once         sync.Once
	reached      chan struct{} // closed when as many as wanted ran at once
}

func newConcurrency(want int) *concurrency {
	return &concurrency{want: want, reached: make(chan struct{})}
}

func (g *concurrency) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.maximum = max(g.maximum, g.now)
	if g.now >= g.want {
		g.once.Do(func() { close(g.reached) })
	}
}

func (g *concurrency) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func maxInFlight(b *fixture) {
	const bound = 3
	_, ids := numberedMessages(30)
	g := newConcurrency(bound)
	b.start(Config{Policy: quickPolicy(1), MaxInFlight: bound}, func(*attempt) error {
		g.enter()
		defer g.leave()
		b.hold(g.reached)
		work := time.NewTimer(20 * time.Millisecond)
		defer work.Stop()
		<-work.C
		return nil
	})
	b.handled(ids...)
	if g.maximum != bound {
		b.Errorf("%d ran at once, want %d", g.maximum, bound)
	}
}

func slow(b *fixture) {
	msgs, ids := numberedMessages(20)
	done := make(chan struct{})
	b.start(Config{Policy: quickPolicy(1)}, func(a *attempt) error {
		if a.State.ID == ids[0] {
			b.hold(done)
		}
		return nil
	})
	b.put(msgs...)
	b.awaitEnds(ids[1:]...)
	if committed, _ := b.ended(); committed[ids[0]] > 0 {
		b.Errorf("the slow message is committed before it is done")
	}
	close(done)
	b.awaitEnds(ids...)
}

// inTurn returns messages whose keys alternate, as many as each per key.
func inTurn(keys, each int) (msgs []Message, ids []string) {
	for i := range each {
		for k := range keys {
			id := fmt.Sprintf("%d-%02d", k, i)
			msgs = append(msgs, Message{ID: id, Key: fmt.Append(nil, "key ", k), Body: []byte(id)})
			ids = append(ids, id)
		}
	}
	return msgs, ids
}

func keyOrder(b *fixture) {
	const keys, each = 4, 25
	msgs, ids := inTurn(keys, each)
	b.start(Config{Policy: quickPolicy(1)}, succeed)
	b.put(msgs...)
	b.awaitEnds(ids...)
	last := make(map[string]attempt)
	for _, a := range b.all() {
		key := string(a.Seen.Key)
		before, ok := last[key]
		last[key] = a
		if !ok {
			continue
		}
		if a.State.ID < before.State.ID {
			b.Errorf("%s came after %s", a.State.ID, before.State.ID)
		}
		if a.Began.Before(before.Ended) {
			b.Errorf("%s began %s before %s had ended", a.State.ID, before.Ended.Sub(a.Began), before.State.ID)
		}
	}
	if len(last) != keys {
		b.Errorf("%d keys, want %d", len(last), keys)
	}
}

func overtaken(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, failFirst(1, "failed"))
	b.put(b.underOneKey(namedMessages("before", "failed", "behind", "last"))...)
	b.awaitEnds("before", "failed", "behind", "last")
	var order []string
	for _, a := range b.all() {
		if a.State.Attempt() == 1 {
			order = append(order, a.State.ID)
		}
	}
	if got := fmt.Sprint(order); got != "[before failed behind last]" {
		b.Errorf("first attempts in the order %s", got)
	}
	b.wantRuns("failed", 2)
	b.checkNotEarly(constantDelay(100*time.Millisecond), "failed")
}
