package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// perKey tests that a failing message blocks only the messages of its key.
func perKey() []test {
	return []test{
		{name: "MessagesBehindAFailedOneOfTheirKeyWait", needs: "OrderThroughRetries", body: ofOneKey.waits},
		{name: "AFailingKeyBlocksNoOtherKey", needs: "OrderThroughRetries", body: otherKeysRun},
		{name: "AKeyContinuesAfterADeadLetter", needs: "OrderThroughRetries", body: ofOneKey.continuesAfterDeadLetter},
		{name: "AMessageWhoseHandlerHangsKeepsItsKey", needs: "OrderThroughRetries", body: hangingKeepsKey},
		{name: "AKeyContinuesInOrderAfterAKill", needs: "OrderThroughRetries", body: ofOneKey.afterKill},
		{name: "KeysKeepTheirOrderWhateverFails", needs: "OrderThroughRetries", body: keysInOrder},
	}
}

var ofOneKey = ordered{perKeyPolicy, func(_ *fixture, ids ...string) []Message { return keyed("the same", ids...) }}

// perKeyPolicy returns a policy with the OrderThroughRetries.
func perKeyPolicy(retries int) redeliver.Policy {
	p := quickPolicy(retries)
	p.Order = redeliver.OrderThroughRetries
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

// otherKeysRun fails messages of more keys than may run at once. Others must run.
func otherKeysRun(b *fixture) {
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
		ran := b.checkOrder(id, "behind "+id)
		if at := slices.Index(ran, "behind "+id); at != len(ran)-1 {
			b.Errorf("ran in the order %q", ran)
		}
	}
	b.dead(0)
}

// hangingKeepsKey lets the handler of a message ignore its timeout.
func hangingKeepsKey(b *fixture) {
	p := perKeyPolicy(1)
	p.Timeout = 200 * time.Millisecond
	b.start(Config{Policy: p}, func(a *attempt) error {
		if a.State.ID == "hangs" && a.State.Attempts == 0 {
			<-b.Context().Done()
		}
		return nil
	})
	b.put(keyed("the same", "hangs", "behind")...)
	b.awaitEnds("hangs", "behind")
	var began []string
	for _, a := range b.all() {
		began = append(began, fmt.Sprint(a.State.ID, " ", a.State.Attempt()))
	}
	if want := []string{"hangs 1", "hangs 2", "behind 1"}; !slices.Equal(began, want) {
		b.Errorf("attempts began in the order %q, want %q", began, want)
	}
	b.dead(0)
}

// keysInOrder fails every third message once, and every eleventh always.
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
		if got := slices.Compact(b.checkOrder(want...)); !slices.Equal(got, want) {
			b.Errorf("%s ran in the order %q", key, got)
		}
	}
}
