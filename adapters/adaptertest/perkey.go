package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// perKey: a failing key blocks only its own messages.
func perKey() []test {
	return []test{
		{name: "MessagesBehindAFailedOneOfTheirKeyWait", needs: "PerKey", body: keyWaits},
		{name: "AFailingKeyBlocksNoOtherKey", needs: "PerKey", body: othersFlow},
		{name: "AKeyContinuesAfterADeadLetter", needs: "PerKey", body: keyGoesOn},
		{name: "AKeyContinuesInOrderAfterAKill", needs: "PerKey", body: keyAfterKill},
		{name: "KeysKeepTheirOrderWhateverFails", needs: "PerKey", body: keysInOrder},
	}
}

// perKeyPolicy returns a policy with the PerKey order.
func perKeyPolicy(retries int) redeliver.Policy {
	p := quickPolicy(retries)
	p.Order = redeliver.PerKey
	return p
}

// keyed returns messages of one key.
func keyed(key string, names ...string) []Message {
	msgs := namedMessages(names...)
	for i := range msgs {
		msgs[i].Key = []byte(key)
	}
	return msgs
}

// checkKeyOrder returns the attempts so far of the messages of a key, by id, and checks that none began before the
// previous one ended.
func (b *fixture) checkKeyOrder(ids ...string) (ran []string) {
	b.Helper()
	var last attempt
	for _, a := range b.all() {
		if !slices.Contains(ids, a.State.ID) {
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

func keyWaits(b *fixture) {
	b.start(Config{Policy: perKeyPolicy(3)}, func(a *attempt) error {
		if a.State.ID == "failing" && a.State.Attempts < 2 {
			return errHandler
		}
		return nil
	})
	b.put(keyed("the same", "before", "failing", "behind", "last")...)
	b.awaitEnds("before", "failing", "behind", "last")
	if got := b.checkKeyOrder("before", "failing", "behind", "last"); !slices.Equal(got, []string{"before", "failing", "failing", "failing", "behind", "last"}) {
		b.Errorf("ran in the order %q", got)
	}
	b.wantRuns("failing", 3)
	b.checkNotEarly(constantDelay(100*time.Millisecond), "failing")
	b.dead(0)
}

// othersFlow: more keys fail than may run at once.
func othersFlow(b *fixture) {
	const bound = 2
	others := []string{"o1", "o2", "o3", "o4", "o5"}
	failing := []string{"f1", "f2", "f3", "f4"}
	p := perKeyPolicy(1000)
	b.start(Config{Policy: p, MaxInFlight: bound}, func(a *attempt) error {
		if committed, _ := b.ended(); slices.Contains(failing, a.State.ID) {
			for _, id := range others {
				if committed[id] == 0 {
					return errHandler
				}
			}
		}
		return nil
	})
	var all []string
	for _, id := range failing {
		behind := "behind " + id
		b.put(keyed("key of "+id, id, behind)...)
		all = append(all, id, behind)
	}
	b.await("all of them fail", func() bool {
		return !slices.ContainsFunc(failing, func(id string) bool { return len(b.ran(id)) == 0 })
	})
	for _, id := range others {
		b.put(keyed("key of "+id, id)...)
	}
	b.put(namedMessages("keyless")...)
	b.awaitEnds(append(others, "keyless")...)
	b.awaitEnds(all...)
	for _, id := range failing {
		ran := b.checkKeyOrder(id, "behind "+id)
		if at := slices.Index(ran, "behind "+id); at != len(ran)-1 {
			b.Errorf("ran in the order %q", ran)
		}
	}
	b.dead(0)
}

func keyGoesOn(b *fixture) {
	b.start(Config{Policy: perKeyPolicy(1)}, func(a *attempt) error {
		if a.State.ID == "poison" {
			return errHandler
		}
		return nil
	})
	b.put(keyed("the same", "poison", "behind")...)
	b.awaitEnds("poison", "behind")
	if got := fmt.Sprint(b.checkKeyOrder("poison", "behind")); got != "[poison poison behind]" {
		b.Errorf("ran in the order %s", got)
	}
	b.checkDeadLetter(redeliver.ReasonExhausted, 2)
}

func keyAfterKill(b *fixture) {
	p := b.start(Config{Policy: perKeyPolicy(1000)}, func(a *attempt) error {
		if a.State.ID == "failing" {
			return errHandler
		}
		return nil
	})
	b.put(keyed("the same", "failing", "behind", "last")...)
	b.put(keyed("another", "other")...)
	b.awaitEnds("other")
	b.await("it has failed", func() bool { return len(b.ran("failing")) >= 2 })
	p.kill()
	before := len(b.all())
	b.start(Config{Policy: perKeyPolicy(3)}, succeed)
	b.awaitEnds("failing", "behind", "last")
	var ran []string
	for _, a := range b.all()[before:] {
		if a.State.ID != "other" { // its ack may be lost
			ran = append(ran, a.State.ID)
		}
	}
	// It may exist twice, if the kill came right after the copy for its wait.
	if got := fmt.Sprint(slices.Compact(ran)); got != "[failing behind last]" {
		b.Errorf("ran in the order %s", got)
	}
}

// keysInOrder: every third message fails once, and every eleventh for good.
func keysInOrder(b *fixture) {
	const keys, each = 5, 20
	var msgs []Message
	var ids []string
	of := make(map[string][]string)
	for i := range each {
		for k := range keys {
			key, id := fmt.Sprint("key ", k), fmt.Sprintf("%d-%02d", k, i)
			msgs = append(msgs, keyed(key, id)...)
			ids = append(ids, id)
			of[key] = append(of[key], id)
		}
	}
	b.start(Config{Policy: perKeyPolicy(1)}, func(a *attempt) error {
		n := slices.Index(ids, a.State.ID)
		if n%11 == 0 || n%3 == 0 && a.State.Attempts == 0 {
			return errHandler
		}
		return nil
	})
	b.put(msgs...)
	b.awaitEnds(ids...)
	for key, want := range of {
		if got := slices.Compact(b.checkKeyOrder(want...)); !slices.Equal(got, want) {
			b.Errorf("%s ran in the order %q", key, got)
		}
	}
}
