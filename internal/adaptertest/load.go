package adaptertest

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
)

// loads tests that the load of a process can be observed.
func loads() []test {
	return []test{
		{name: "LoadCountsMessagesInFlight", body: inFlightIsKnown},
		{name: "LoadCountsMessagesHeldBehindAKey", needs: "OrderThroughRetries", body: heldIsKnown},
	}
}

// watched is an observable subscription.
type watched struct {
	origin, group string
	load          func() observe.Load
}

// Watch implements [observe.LoadSink].
func (p *process) Watch(origin, group string, load func() observe.Load) (end func()) {
	p.journal.change(func() { p.watched = append(p.watched, watched{origin, group, load}) })
	return func() { p.journal.change(func() { p.unwatched++ }) }
}

// watchedSubscriptions returns the subscriptions so far, and how many have ended.
func (p *process) watchedSubscriptions() (all []watched, ended int) {
	p.journal.mu.Lock()
	defer p.journal.mu.Unlock()
	return p.watched, p.unwatched
}

// load returns the load of the process.
func (p *process) load() (all observe.Load) {
	of, _ := p.watchedSubscriptions()
	for _, w := range of {
		l := w.load()
		all.InFlight += l.InFlight
		all.Held += l.Held
	}
	return all
}

// awaitLoad polls until the load is as wanted, because no event reports it.
func (p *process) awaitLoad(what string, want observe.Load) {
	p.b.Helper()
	p.awaitLoadThat(what, func(l observe.Load) bool { return l == want })
}

func (p *process) awaitLoadThat(what string, is func(observe.Load) bool) {
	p.b.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is(p.load()) {
		select {
		case <-look.C:
		case <-deadline.C:
			p.b.Fatalf("%s: the load is %+v", what, p.load())
		}
	}
}

func inFlightIsKnown(b *fixture) {
	n := 3
	if !b.h.Features.NoHeadOfLineBlocking { // a running message may have others behind it
		n = 1
	}
	gate := make(chan struct{})
	p := b.start(Config{}, func(a *attempt) error {
		b.hold(gate)
		if a.State.Attempts == 0 && a.State.ID == "m-000" {
			return redeliver.Permanent(errHandler)
		}
		return nil
	})
	b.await("the subscription is watched", func() bool { of, _ := p.watchedSubscriptions(); return len(of) > 0 })
	if of, _ := p.watchedSubscriptions(); len(of) != 1 || of[0].origin != b.origin || of[0].group != b.group {
		b.Errorf("the process watches %+v", of)
	}
	msgs, ids := numberedMessages(n)
	b.put(msgs...)
	b.await(fmt.Sprintf("%d handlers run", n), func() bool { return len(b.all()) == n })
	p.awaitLoad("while they run", observe.Load{InFlight: n})
	close(gate)
	b.awaitEnds(ids...)
	p.awaitLoad("when they have ended", observe.Load{})
	p.close()
	p.awaitLoad("when it is closed", observe.Load{})
	if _, ended := p.watchedSubscriptions(); ended != 1 {
		b.Errorf("the end of %d subscriptions was reported, want 1", ended)
	}
}

// heldIsKnown checks that Load counts held messages if the harness has ReadsAhead. Otherwise any number of them is correct, and
// heldIsKnown only checks the messages in flight.
func heldIsKnown(b *fixture) {
	ids := []string{"first", "second", "third", "fourth"}
	gate := make(chan struct{})
	p := b.start(Config{Policy: perKeyPolicy(1)}, func(*attempt) error {
		b.hold(gate)
		return nil
	})
	b.put(keyed("the same", ids...)...)
	b.await("the first runs", func() bool { return len(b.all()) == 1 })
	p.awaitLoadThat("while the first runs", func(l observe.Load) bool {
		return l.InFlight == 1 && l.Held <= len(ids)-1 && (!b.h.ReadsAhead || l.Held == len(ids)-1)
	})
	close(gate)
	b.awaitEnds(ids...)
	p.awaitLoad("when they have ended", observe.Load{})
}
