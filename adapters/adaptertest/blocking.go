package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// blocking: RocketMQ's ordered consumer. Messages are of one key, so they share a
// partition or a group where there are several.
func blocking() []test {
	return []test{
		{name: "ABlockingPolicyRunsOneAtATimeAndWaitsInPlace", needs: "Blocking", body: blocked},
		{name: "BehindADeadLetterABlockingPolicyGoesOn", needs: "Blocking", body: blockedToTheEnd},
		{name: "WhatABlockedProcessLeavesComesBackInOrder", needs: "Blocking", body: blockedAndKilled},
	}
}

// block is a policy whose messages keep their place.
func block(retries int) redeliver.Policy {
	return redeliver.Policy{Order: redeliver.Blocking, MaxRetries: retries, Backoff: redeliver.Fixed(100 * time.Millisecond)}
}

// inOrder are the attempts so far, each of which must have begun behind the one
// before it.
func (b *bench) inOrder() (ran []string) {
	b.Helper()
	var last attempt
	for i, a := range b.all() {
		if i > 0 && a.Began.Before(last.Ended) {
			b.Errorf("%s began before %s had ended", a.State.ID, last.State.ID)
		}
		last = a
		ran = append(ran, a.State.ID)
	}
	return ran
}

func blocked(b *bench) {
	b.start(Config{Policy: block(3)}, func(a *attempt) error {
		if a.State.ID == "failing" && a.State.Attempts < 2 {
			return errDeclined
		}
		return nil
	})
	b.put(b.underOneKey(named("before", "failing", "behind", "last"))...)
	b.awaitEnds("before", "failing", "behind", "last")
	if got := b.inOrder(); !slices.Equal(got, []string{"before", "failing", "failing", "failing", "behind", "last"}) {
		b.Errorf("ran in the order %q", got)
	}
	b.wantRuns("failing", 3)
	b.noneEarlier(always(100*time.Millisecond), "failing")
	b.dead(0)
}

func blockedToTheEnd(b *bench) {
	b.start(Config{Policy: block(1)}, func(a *attempt) error {
		if a.State.ID == "poison" {
			return errDeclined
		}
		return nil
	})
	b.put(b.underOneKey(named("poison", "behind"))...)
	b.awaitEnds("poison", "behind")
	if got := fmt.Sprint(b.inOrder()); got != "[poison poison behind]" {
		b.Errorf("ran in the order %s", got)
	}
	b.buried(redeliver.ReasonExhausted, 2)
}

func blockedAndKilled(b *bench) {
	p := b.start(Config{Policy: block(1000)}, decline)
	b.put(b.underOneKey(named("failing", "behind"))...)
	b.await("it has failed", func() bool { return len(b.ran("failing")) >= 2 })
	p.kill()
	before := len(b.all())
	b.start(Config{Policy: block(3)}, succeed)
	b.awaitEnds("failing", "behind")
	var ran []string
	for _, a := range b.all()[before:] {
		ran = append(ran, a.State.ID)
	}
	if got := fmt.Sprint(ran); got != "[failing behind]" {
		b.Errorf("ran in the order %s", got)
	}
}
