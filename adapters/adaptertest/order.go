package adaptertest

import (
	"fmt"
	"sync"
	"time"
)

// orders: what may run beside what.
func orders() []test {
	return []test{
		{name: "MaxInFlightBoundsWhatRunsAtOnce", body: maxInFlight},
		{name: "ASlowMessageBlocksNoOther", needs: "SlowHoldsUpNone", body: slow},
		{name: "MessagesOfOneKeyRunInOrder", needs: "KeyOrder", body: keyOrder},
		{name: "OnlyAFailedMessageIsOvertakenByItsKey", needs: "KeyOrder", body: overtaken},
	}
}

// gauge counts what runs at once.
type gauge struct {
	mu        sync.Mutex
	now, most int
	want      int
	once      sync.Once
	reached   chan struct{} // closed when there were as many as wanted
}

func newGauge(want int) *gauge { return &gauge{want: want, reached: make(chan struct{})} }

func (g *gauge) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.most = max(g.most, g.now)
	if g.now >= g.want {
		g.once.Do(func() { close(g.reached) })
	}
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func maxInFlight(b *bench) {
	const bound = 3
	_, ids := many(30)
	g := newGauge(bound)
	b.start(Config{Policy: quick(1), MaxInFlight: bound}, func(*attempt) error {
		g.enter()
		defer g.leave()
		b.hold(g.reached)
		work := time.NewTimer(20 * time.Millisecond)
		defer work.Stop()
		<-work.C
		return nil
	})
	b.handled(ids...)
	if g.most != bound {
		b.Errorf("%d ran at once, want %d", g.most, bound)
	}
}

func slow(b *bench) {
	msgs, ids := many(20)
	done := make(chan struct{})
	b.start(Config{Policy: quick(1)}, func(a *attempt) error {
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

// inTurn are messages of several keys, in turn.
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

func keyOrder(b *bench) {
	const keys, each = 4, 25
	msgs, ids := inTurn(keys, each)
	b.start(Config{Policy: quick(1)}, succeed)
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

func overtaken(b *bench) {
	b.start(Config{Policy: quick(1)}, declineFirst(1, "failed"))
	b.put(b.underOneKey(named("before", "failed", "behind", "last"))...)
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
	b.noneEarlier(always(100*time.Millisecond), "failed")
}
