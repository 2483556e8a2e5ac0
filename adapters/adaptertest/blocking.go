package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// blocking: the order of RocketMQ's ordered consumer. Messages have one key, so that they share a partition or a
// group.
func blocking() []test {
	return []test{
		{name: "ABlockingPolicyRunsOneAtATimeAndWaitsInPlace", needs: "Blocking", body: blocked},
		{name: "ABlockingPolicyContinuesAfterADeadLetter", needs: "Blocking", body: blockedToTheEnd},
		{name: "MessagesOfAKilledBlockingProcessComeBackInOrder", needs: "Blocking", body: blockedAndKilled},
	}
}

// blockingPolicy returns a policy with the Blocking order.
func blockingPolicy(retries int) redeliver.Policy {
	return redeliver.Policy{Order: redeliver.Blocking, MaxRetries: retries, Backoff: redeliver.Fixed(100 * time.Millisecond)}
}

// checkOrder returns the attempts so far, and checks that none began before the previous one ended.
func (b *fixture) checkOrder() (ran []string) {
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

func blocked(b *fixture) {
	b.start(Config{Policy: blockingPolicy(3)}, func(a *attempt) error {
		if a.State.ID == "failing" && a.State.Attempts < 2 {
			return errHandler
		}
		return nil
	})
	b.put(b.underOneKey(namedMessages("before", "failing", "behind", "last"))...)
	b.awaitEnds("before", "failing", "behind", "last")
	if got := b.checkOrder(); !slices.Equal(got, []string{"before", "failing", "failing", "failing", "behind", "last"}) {
		b.Errorf("ran in the order %q", got)
	}
	b.wantRuns("failing", 3)
	b.checkNotEarly(constantDelay(100*time.Millisecond), "failing")
	b.dead(0)
}

func blockedToTheEnd(b *fixture) {
	b.start(Config{Policy: blockingPolicy(1)}, func(a *attempt) error {
		if a.State.ID == "poison" {
			return errHandler
		}
		return nil
	})
	b.put(b.underOneKey(namedMessages("poison", "behind"))...)
	b.awaitEnds("poison", "behind")
	if got := fmt.Sprint(b.checkOrder()); got != "[poison poison behind]" {
		b.Errorf("ran in the order %s", got)
	}
	b.checkDeadLetter(redeliver.ReasonExhausted, 2)
}

func blockedAndKilled(b *fixture) {
	p := b.start(Config{Policy: blockingPolicy(1000)}, failHandler)
	b.put(b.underOneKey(namedMessages("failing", "behind"))...)
	b.await("it has failed", func() bool { return len(b.ran("failing")) >= 2 })
	p.kill()
	before := len(b.all())
	b.start(Config{Policy: blockingPolicy(3)}, succeed)
	b.awaitEnds("failing", "behind")
	var ran []string
	for _, a := range b.all()[before:] {
		ran = append(ran, a.State.ID)
	}
	if got := fmt.Sprint(ran); got != "[failing behind]" {
		b.Errorf("ran in the order %s", got)
	}
}
