package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// blocking tests OrderBlocking. Messages have one key, so that they share a partition or a message group.
func blocking() []test {
	return []test{
		{name: "ABlockingPolicyRunsOneAtATimeAndWaitsInPlace", needs: "OrderBlocking", body: inPlace.waits},
		{name: "ABlockingPolicyContinuesAfterADeadLetter", needs: "OrderBlocking", body: inPlace.continuesAfterDeadLetter},
		{name: "MessagesOfAKilledBlockingProcessComeBackInOrder", needs: "OrderBlocking", body: inPlace.afterKill},
		{name: "ABlockingPolicyKeepsItsOrderThroughOtherLimits", needs: "OrderBlocking", body: inPlace.throughOtherLimits},
	}
}

// ordered is an order in which messages wait for an earlier one that fails.
type ordered struct {
	policy func(retries int) redeliver.Policy
	// messages makes messages that wait for each other.
	messages func(b *fixture, ids ...string) []Message
}

var inPlace = ordered{
	func(retries int) redeliver.Policy {
		return redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: retries, Backoff: redeliver.Fixed(100 * time.Millisecond)}
	},
	func(b *fixture, ids ...string) []Message { return b.underOneKey(namedMessages(ids...)) },
}

// checkOrder returns the ids of the attempts so far, of these messages or of all. Each must begin after the previous
// one ends.
func (b *fixture) checkOrder(ids ...string) (ran []string) {
	b.Helper()
	var last attempt
	for _, a := range b.all() {
		if len(ids) > 0 && !slices.Contains(ids, a.State.ID) {
			continue
		}
		if ran != nil && a.Began.Before(last.Ended) {
			b.Errorf("%s began before %s had ended", a.State.ID, last.State.ID)
		}
		last = a
		ran = append(ran, a.State.ID)
	}
	return ran
}

func (o ordered) waits(b *fixture) {
	ids := []string{"before", "failing", "behind", "last"}
	b.start(Config{Policy: o.policy(3)}, failFirst(2, "failing"))
	b.put(o.messages(b, ids...)...)
	b.awaitEnds(ids...)
	if got := b.checkOrder(); !slices.Equal(got, []string{"before", "failing", "failing", "failing", "behind", "last"}) {
		b.Errorf("ran in the order %q", got)
	}
	b.wantRuns("failing", 3)
	b.checkNotEarly(constantDelay(100*time.Millisecond), "failing")
	b.dead(0)
}

func (o ordered) continuesAfterDeadLetter(b *fixture) {
	b.start(Config{Policy: o.policy(1)}, declineOnly("poison"))
	b.put(o.messages(b, "poison", "behind")...)
	b.awaitEnds("poison", "behind")
	if got := fmt.Sprint(b.checkOrder()); got != "[poison poison behind]" {
		b.Errorf("ran in the order %s", got)
	}
	b.checkDeadLetter(redeliver.ReasonExhausted, 2)
}

func (o ordered) afterKill(b *fixture) {
	p := b.start(Config{Policy: o.policy(1000)}, declineOnly("failing"))
	b.put(o.messages(b, "failing", "behind", "last")...)
	b.await("it has failed", func() bool { return len(b.ran("failing")) >= 2 })
	p.kill()
	before := len(b.all())
	b.start(Config{Policy: o.policy(3)}, succeed)
	b.awaitEnds("failing", "behind", "last")
	var ran []string
	for _, a := range b.all()[before:] {
		ran = append(ran, a.State.ID)
	}
	// The failing message may exist twice: a kill may follow its write.
	if got := fmt.Sprint(slices.Compact(ran)); got != "[failing behind last]" {
		b.Errorf("ran in the order %s", got)
	}
}

// throughOtherLimits kills processes that may have different numbers of messages in flight, as in a deploy.
func (o ordered) throughOtherLimits(b *fixture) {
	ids := []string{"failing", "b", "c", "d", "e", "f", "g", "h"}
	for i, n := range []int{8, 2} {
		before := len(b.ran("failing"))
		p := b.start(Config{Policy: o.policy(1000), MaxInFlight: n}, declineOnly("failing"))
		if i == 0 {
			b.put(o.messages(b, ids...)...)
		}
		b.await("it has failed", func() bool { return len(b.ran("failing")) >= before+2 })
		p.kill()
	}
	before := len(b.all())
	b.start(Config{Policy: o.policy(3), MaxInFlight: 8}, succeed)
	b.awaitEnds(ids...)
	var ran []string
	for _, a := range b.all()[before:] {
		ran = append(ran, a.State.ID)
	}
	if got := slices.Compact(ran); !slices.Equal(got, ids) {
		b.Errorf("ran in the order %q", got)
	}
}
