package adaptertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// lives tests that the attempts of a message count over the ends of its processes, in every order.
func lives() []test {
	moves := manyLives{ordered{quickPolicy, func(b *fixture, ids ...string) []Message { return b.underOneKey(namedMessages(ids...)) }}, false, false}
	blocks, ofKey := manyLives{inPlace, true, true}, manyLives{ofOneKey, true, false}
	const blocksNeeds, ofKeyNeeds = "OrderBlocking KeepsAttemptsInPlace", "OrderThroughRetries KeepsAttemptsInPlace"
	return []test{
		{name: "AttemptsCountOverRestarts", needs: "KeepsAttempts", body: moves.overRestarts},
		{name: "AttemptsCountOverKills", needs: "KeepsAttempts", body: moves.overKills},
		{name: "AMessageThatOutlivesItsProcessesEndsInTheDLQ", needs: "KeepsAttempts", body: moves.outlivesProcesses},
		{name: "ProcessesThatTakeTurnsCountTheSameAttempts", needs: "KeepsAttempts", body: moves.overTurns},

		{name: "AttemptsCountOverRestartsOfABlockingPolicy", needs: blocksNeeds, body: blocks.overRestarts},
		{name: "AttemptsCountOverKillsOfABlockingPolicy", needs: blocksNeeds, body: blocks.overKills},
		{name: "AMessageThatOutlivesItsProcessesEndsInTheDLQOfABlockingPolicy", needs: blocksNeeds, body: blocks.outlivesProcesses},
		{name: "ProcessesThatTakeTurnsCountTheSameAttemptsOfABlockingPolicy", needs: blocksNeeds, body: blocks.overTurns},

		{name: "AttemptsCountOverRestartsThroughRetries", needs: ofKeyNeeds, body: ofKey.overRestarts},
		{name: "AttemptsCountOverKillsThroughRetries", needs: ofKeyNeeds, body: ofKey.overKills},
		{name: "AMessageThatOutlivesItsProcessesEndsInTheDLQThroughRetries", needs: ofKeyNeeds, body: ofKey.outlivesProcesses},
		{name: "ProcessesThatTakeTurnsCountTheSameAttemptsThroughRetries", needs: ofKeyNeeds, body: ofKey.overTurns},
	}
}

// manyLives is an order in which a message fails in one process after another.
type manyLives struct {
	ordered
	waits bool // a message behind the failing one waits for its end
	// one says that a kill leaves no second copy of the message, because it waits in its place. Otherwise a copy that was written
	// just before a kill may be there beside the message that it is of.
	one bool
}

// declineNumbered fails every attempt of one message, each with another text.
func declineNumbered(a *attempt) error {
	if a.State.ID != "failing" {
		return nil
	}
	return fmt.Errorf("try %d: %w", a.State.Attempt(), errHandler)
}

// failures returns how often an attempt of the failing message has ended and was decided about.
func (b *fixture) failures() (n int) {
	for _, e := range eventsOf[redeliver.RetryScheduled](b.journal) {
		if e.State.ID == "failing" {
			n++
		}
	}
	_, dead := b.ended()
	return n + dead["failing"]
}

// awaitFailures waits until the failing message has failed n times more, or is dead.
func (b *fixture) awaitFailures(before, n int) {
	b.Helper()
	b.await("it has failed again", func() bool { return b.failures() >= before+n || b.haveEnded("failing") }, "failing")
}

// checkLives fails the test if the message still lives after twice as many processes as it has attempts.
func (b *fixture) checkLives(processes, attempts int) {
	b.Helper()
	if processes > 2*attempts {
		logLines(b.T, b.historyOf("failing"))
		b.Fatalf("it ran as attempts %v in %d processes, and has not ended", numbers(b.ran("failing")), processes)
	}
}

// checkEnd waits for the end of all messages, and checks those of the failing one after ends of processes by a kill.
func (o manyLives) checkEnd(b *fixture, attempts, kills int) {
	b.Helper()
	b.awaitEnds("failing", "behind")
	runs := b.ran("failing")
	if kills == 0 {
		b.wantRuns("failing", attempts)
	}
	copies := 1 << kills // a kill may leave a second copy of each
	maxRuns := attempts * copies
	if o.one {
		copies, maxRuns = 1, attempts+kills
	}
	if len(runs) < attempts || len(runs) > maxRuns {
		logLines(b.T, b.historyOf("failing"))
		b.Errorf("it ran as attempts %v with %d kills, want %d to %d runs", numbers(runs), kills, attempts, maxRuns)
	}
	dead := b.h.DeadLetters(b.T, b.origin, b.group, 1)
	if len(dead) < 1 || len(dead) > copies {
		b.Fatalf("%d messages are in the DLQ, want 1 to %d", len(dead), copies)
	}
	for _, m := range dead {
		st := b.deadLetterState(m)
		b.checkReason(st, redeliver.ReasonExhausted, attempts)
		if first, last := "try 1: card declined", fmt.Sprintf("try %d: card declined", attempts); st.FirstError != first || st.Error != last {
			b.Errorf("the dead letter says first %q and last %q, want %q and %q", st.FirstError, st.Error, first, last)
		}
	}
	if o.waits && copies == 1 { // a copy may come behind the end of the first one
		if ran := b.checkOrder("failing", "behind"); slices.Index(ran, "behind") != len(ran)-1 {
			b.Errorf("ran in the order %q", ran)
		}
	}
}

// policyOf returns the order's policy for a number of attempts. No kill counts as the message's fault: one may come while the broker
// does not know yet that the handler has ended.
func (o manyLives) policyOf(attempts int) redeliver.Policy {
	p := o.policy(attempts - 1)
	p.MaxCrashes = 100
	return p
}

func (o manyLives) put(b *fixture) {
	b.Helper()
	b.put(o.messages(b, "failing", "behind")...)
}

// overRestarts closes a process after each failure.
func (o manyLives) overRestarts(b *fixture) {
	const attempts = 5
	for i := 0; i == 0 || !b.haveEnded("failing"); i++ {
		b.checkLives(i, attempts)
		before := b.failures()
		p := b.start(Config{Policy: o.policyOf(attempts)}, declineNumbered)
		if i == 0 {
			o.put(b)
		}
		b.awaitFailures(before, 1)
		p.close()
	}
	b.start(Config{Policy: o.policyOf(attempts)}, declineNumbered)
	o.checkEnd(b, attempts, 0)
}

// overKills kills processes in which the message has failed twice: if the second failure is forgotten, the first one is not.
func (o manyLives) overKills(b *fixture) {
	const attempts, kills = 8, 3
	for i := range kills {
		before := b.failures()
		p := b.start(Config{Policy: o.policyOf(attempts)}, declineNumbered)
		if i == 0 {
			o.put(b)
		}
		b.awaitFailures(before, 2)
		p.kill()
	}
	b.start(Config{Policy: o.policyOf(attempts)}, declineNumbered)
	o.checkEnd(b, attempts, kills)
}

// outlivesProcesses lets every wait begin in one process and end in another one. Between two of them one comes and goes during
// the wait. Where a kill leaves no copy, every second process is killed.
func (o manyLives) outlivesProcesses(b *fixture) {
	const attempts, wait = 4, 700 * time.Millisecond
	p := o.policyOf(attempts)
	p.Backoff, p.Levels = redeliver.Fixed(wait), nil
	kills := 0
	for i := 0; i == 0 || !b.haveEnded("failing"); i++ {
		b.checkLives(i, attempts)
		before := b.failures()
		proc := b.start(Config{Policy: p}, declineNumbered)
		if i == 0 {
			o.put(b)
		}
		b.awaitFailures(before, 1)
		if o.one && i%2 == 1 && !b.haveEnded("failing") {
			kills++
			proc.kill()
		} else {
			proc.close()
		}
		if i == 0 {
			b.start(Config{Policy: p}, declineNumbered).close()
		}
	}
	b.start(Config{Policy: p}, declineNumbered)
	o.checkEnd(b, attempts, kills)
	b.checkNotEarly(constantDelay(wait), "failing")
}

// overTurns lets two processes run. The one that has the message ends after a failure, the other one takes it over, and another
// one begins. Where a kill leaves no copy, every second process is killed.
func (o manyLives) overTurns(b *fixture) {
	const attempts, wait = 6, 500 * time.Millisecond
	p := o.policyOf(attempts)
	p.Backoff, p.Levels = redeliver.Fixed(wait), nil
	for range 2 {
		b.start(Config{Policy: p}, declineNumbered)
	}
	o.put(b)
	kills := 0
	for i := 0; ; i++ {
		b.checkLives(i, attempts)
		b.awaitFailures(b.failures(), 1)
		if b.haveEnded("failing") {
			break
		}
		runs := b.ran("failing")
		if has := runs[len(runs)-1].Process; o.one && i%2 == 1 {
			kills++
			has.kill()
		} else {
			has.close()
		}
		b.start(Config{Policy: p}, declineNumbered)
	}
	o.checkEnd(b, attempts, kills)
	b.checkNotEarly(constantDelay(wait), "failing")
}
