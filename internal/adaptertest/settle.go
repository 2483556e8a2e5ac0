package adaptertest

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// settling tests that nothing is acked before its copy is confirmed, and that a message ends in one place (promises 1 and 2).
func settling() []test {
	return []test{
		{name: "SuccessIsCommittedAndWritesNothing", needs: "KeepsAttempts", body: successIsCommitted},
		{name: "EveryMessageEndsInExactlyOnePlace", body: exactlyOnePlace},
		{name: "ARefusedRetryRepeatsOnlyTheWrite", needs: "Refuse", body: func(b *fixture) { whileRefused(b, Levels) }},
		{name: "ARefusedDeadLetterRepeatsOnlyTheWrite", needs: "Refuse", body: func(b *fixture) { whileRefused(b, DLQ) }},
		{name: "ARefusedRetryStaysUnacked", needs: "Refuse KeepsAttempts", body: func(b *fixture) { unackedWhileRefused(b, Levels) }},
		{name: "ARefusedDeadLetterStaysUnacked", needs: "Refuse KeepsAttempts", body: func(b *fixture) { unackedWhileRefused(b, DLQ) }},
	}
}

func successIsCommitted(b *fixture) {
	msgs, ids := numberedMessages(10)
	p := b.start(Config{Policy: quickPolicy(3)}, succeed)
	b.put(b.underOneKey(msgs)...)
	b.awaitEnds(ids...)
	p.close()
	// An unacked message would come again before this one.
	b.start(Config{Policy: quickPolicy(3)}, succeed)
	b.put(b.underOneKey(namedMessages("last"))...)
	b.awaitEnds("last")
	b.wantEach(1, append(ids, "last")...)
	if n := len(eventsOf[redeliver.RetryScheduled](b.journal)) + len(eventsOf[redeliver.MessagePostponed](b.journal)); n > 0 {
		b.Errorf("%d messages wait although nothing failed", n)
	}
	b.dead(0)
}

func exactlyOnePlace(b *fixture) {
	const n = 60
	_, ids := numberedMessages(n)
	kind := func(id string) int { return slices.Index(ids, id) % 3 }
	b.start(Config{Policy: quickPolicy(2)}, func(a *attempt) error {
		if kind(a.State.ID) > a.State.Attempts || kind(a.State.ID) == 2 {
			return errHandler
		}
		return nil
	})
	b.handled(ids...)
	committed, dead := b.ended()
	for _, id := range ids {
		want := kind(id) + 1
		if kind(id) == 2 {
			want = 3 // all attempts
		}
		b.wantRuns(id, want)
		if kind(id) == 2 && (committed[id] != 0 || dead[id] != 1) || kind(id) < 2 && (committed[id] != 1 || dead[id] != 0) {
			b.Errorf("%s was committed %d times and dead-lettered %d times, its kind was %d", id, committed[id], dead[id], kind(id))
		}
	}
	inDLQ := make(map[string]int)
	for _, m := range b.dead(n / 3) {
		inDLQ[string(m.Body)]++
	}
	for _, id := range ids {
		if kind(id) == 2 && inDLQ[id] != 1 {
			b.Errorf("%s is in the DLQ %d times", id, inDLQ[id])
		}
	}
}

// whileRefused makes the broker refuse a write. The handler must not run again, no other message may begin, and later everything must
// continue.
func whileRefused(b *fixture, place Place) {
	retries, runs := 1, 2
	if place == DLQ {
		retries, runs = redeliver.NoRetries, 1
	}
	b.start(Config{Policy: quickPolicy(retries), SendTimeout: time.Second}, failHandler)
	restore := b.h.Refuse(b.T, b.origin, b.group, place)
	b.put(namedMessages("refused")...)
	awaitEvents[redeliver.PublishFailed](b, 2)
	b.put(namedMessages("next")...)
	tries := awaitEvents[redeliver.PublishFailed](b, 4)
	for _, f := range tries {
		if f.State.ID != "refused" || f.Err == nil || f.Where == "" {
			b.Errorf("refused: %+v", f)
		}
	}
	for _, a := range b.all() {
		if a.State.ID != "refused" || a.State.Attempt() != 1 {
			b.Errorf("attempt %d of %s ran while the broker refused writes", a.State.Attempt(), a.State.ID)
		}
	}
	b.wantRuns("refused", 1)
	restore()
	b.awaitEnds("refused", "next")
	// An unconfirmed write may have succeeded. A copy is harmless, another first attempt is not.
	resting := make(map[string]bool)
	for _, m := range b.h.DeadLetters(b.T, b.origin, b.group, 2) {
		resting[b.deadLetterState(m).ID] = true
	}
	for _, id := range []string{"refused", "next"} {
		ns := numbers(b.ran(id))
		first := len(ns)
		ns = slices.Compact(ns)
		if !slices.Equal(ns, upTo(runs)) || runs == 1 && first != 1 {
			b.Errorf("%s ran as attempts %v, want %v", id, numbers(b.ran(id)), upTo(runs))
		}
		if !resting[id] {
			b.Errorf("%s is not in the DLQ", id)
		}
	}
}

// unackedWhileRefused tests that a message whose write is refused stays unacked: another process gets it.
func unackedWhileRefused(b *fixture, place Place) {
	retries, runs := 1, 2
	if place == DLQ {
		retries, runs = redeliver.NoRetries, 1
	}
	msgs, ids := numberedMessages(5)
	p := b.start(Config{Policy: quickPolicy(retries), SendTimeout: time.Second}, failHandler)
	restore := b.h.Refuse(b.T, b.origin, b.group, place)
	b.put(msgs...)
	awaitEvents[redeliver.PublishFailed](b, 2)
	p.kill()
	before := len(b.all())
	restore()
	b.start(Config{Policy: quickPolicy(retries)}, failHandler)
	b.awaitEnds(ids...)
	first := make(map[string]bool)
	for _, a := range b.all()[before:] {
		if a.State.Attempt() == 1 {
			first[a.State.ID] = true
		}
	}
	for _, id := range ids {
		if !first[id] {
			b.Errorf("%s was not delivered again as attempt 1", id)
		}
		if ns := numbers(b.ran(id)); !slices.Contains(ns, runs) || slices.Max(ns) > runs {
			b.Errorf("%s ran as attempts %v, want %d at most", id, ns, runs)
		}
	}
}
