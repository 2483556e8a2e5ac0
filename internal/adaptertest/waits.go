package adaptertest

import (
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// dueTimes tests State.Due, and how soon after it a retry begins (promise 4). Every test of the kit checks that no attempt begins
// before State.Due.
func dueTimes() []test {
	return []test{
		{name: "ManyMessagesAreNeverEarly", body: neverEarly},
		{name: "AWaitOfManyHopsIsNeverEarly", body: hops},
		{name: "AWaitLongerThanAllLevelsTogetherIsNeverEarly", body: farHops},
		{name: "AWaitBelowTheSmallestLevelIsHeld", body: held},
		{name: "ARetryBeginsSoonAfterItIsDue", body: startsSoon},
		{name: "AMessageKeepsItsOwnJitter", body: jitter},
		{name: "GroupsDoNotSeeEachOthersRetries", needs: "ManyGroups", groups: 2, body: groups},
	}
}

func neverEarly(b *fixture) {
	const n = 200
	_, ids := numberedMessages(n)
	p := redeliver.Policy{
		MaxRetries: 3, Backoff: redeliver.ExponentialBackoff{Base: 60 * time.Millisecond, Max: 240 * time.Millisecond},
		Levels: []time.Duration{60 * time.Millisecond, 120 * time.Millisecond, 240 * time.Millisecond},
	}
	b.start(Config{Policy: p}, failHandler)
	b.handled(ids...)
	b.wantEach(4, ids...)
	b.checkNotEarly(func(retry int) time.Duration {
		d, _ := p.Backoff.Delay(retry, 0)
		return d
	}, ids...)
	b.checkDueTimes(ids...)
	b.dead(n)
}

// checkDueTimes checks that a message keeps its due time through all hops, rounded up to the millisecond at most.
func (b *fixture) checkDueTimes(ids ...string) {
	b.Helper()
	type nth struct {
		id string
		n  int
	}
	decided := make(map[nth]time.Time)
	b.await("every retry was reported", func() bool {
		for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
			decided[nth{r.State.ID, r.State.Attempts}] = r.State.Due
		}
		for _, id := range ids {
			for _, a := range b.ran(id) {
				if _, ok := decided[nth{id, a.State.Attempts}]; !ok && a.State.Attempts > 0 {
					return false
				}
			}
		}
		return true
	})
	for _, id := range ids {
		for _, a := range b.ran(id) {
			if due := decided[nth{id, a.State.Attempts}]; a.State.Attempts > 0 && (a.State.Due.Before(due) || a.State.Due.Sub(due) > time.Millisecond) {
				b.Errorf("attempt %d of %s was due at %s, but its state says %s", a.State.Attempt(), id, due, a.State.Due)
			}
		}
	}
}

func hops(b *fixture) {
	wait(b, 1300*time.Millisecond, 100*time.Millisecond, time.Second)
}

func farHops(b *fixture) {
	wait(b, 750*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond)
}

// held tests a wait that is shorter than the only level, which is an hour.
func held(b *fixture) {
	wait(b, 50*time.Millisecond, time.Hour)
}

// startsSoon tests that a retry begins soon after its due time when slots are free. The bound grows with the time of an ordinary
// message, as in hostile. A retry that waits for an unrelated event, such as the next message, a longer level or a poll every
// minute, exceeds it.
func startsSoon(b *fixture) {
	const n, delay = 20, 500 * time.Millisecond
	b.start(Config{Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(delay), Levels: []time.Duration{delay}}}, func(a *attempt) error {
		if strings.HasPrefix(a.State.ID, "ordinary") || a.State.Attempts > 0 {
			return nil
		}
		return errHandler
	})
	b.handled("ordinary, while it starts")
	began := time.Now()
	b.handled("ordinary")
	bound := max(minNeighbourTimeout, 10*time.Since(began))
	_, ids := numberedMessages(n)
	b.handled(ids...)
	for _, id := range ids {
		b.wantRuns(id, 2)
		retry := b.ran(id)[1]
		if late := retry.Began.Sub(retry.State.Due); late > bound {
			b.Errorf("the retry of %s began %s after it was due, want at most %s", id, late, bound)
		}
	}
	b.dead(0)
}

// wait fails messages once, with one delay on the given levels.
func wait(b *fixture, delay time.Duration, on ...time.Duration) {
	_, ids := numberedMessages(20)
	p := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(delay), Levels: on}
	b.start(Config{Policy: p}, failFirst(1))
	b.handled(ids...)
	b.wantEach(2, ids...)
	b.checkNotEarly(constantDelay(delay), ids...)
	b.checkDueTimes(ids...)
	for _, h := range eventsOf[redeliver.Hopped](b.journal) {
		if h.From == "" || h.To == "" || !slices.Contains(ids, h.State.ID) {
			b.Errorf("hopped: %+v", h)
		}
	}
	b.wantHeadersTrusted()
	b.dead(0)
}

func jitter(b *fixture) {
	const n, base = 40, 200 * time.Millisecond
	_, ids := numberedMessages(n)
	p := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.ExponentialBackoff{Base: base, Max: base}, Levels: []time.Duration{base}}
	b.start(Config{Policy: p}, failFirst(1))
	b.handled(ids...)
	b.checkNotEarly(constantDelay(base), ids...)
	b.checkDueTimes(ids...)
	delays := make(map[time.Duration]bool)
	for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
		delays[r.Delay] = true
		if r.Delay < base || r.Delay >= 2*base {
			b.Errorf("%s waits %s, want from %s to %s", r.State.ID, r.Delay, base, 2*base)
		}
		if again := p.Decide(redeliver.State{ID: r.State.ID}, errHandler, time.Now()); again.Delay != r.Delay {
			b.Errorf("%s waits %s, a duplicate of it %s", r.State.ID, r.Delay, again.Delay)
		}
	}
	if len(delays) < n/2 {
		b.Errorf("%d messages share %d delays", n, len(delays))
	}
}

func groups(b *fixture) {
	const n = 20
	_, ids := numberedMessages(n)
	other := newJournal()
	b.start(Config{Policy: quickPolicy(2)}, failHandler)
	b.startAs(b.groups[1], other, Config{Policy: quickPolicy(2)}, succeed, middleware.Retry())
	b.handled(ids...)
	committed := func() map[string]int { c, _ := other.ended(); return c }
	other.await(b.T, "the other group handles all", func() bool { return len(committed()) == n })
	// No message of the first group is still on its way; its dead letters do not reach the other group either.
	b.handled("last")
	other.await(b.T, "the other group handles the last", func() bool { return committed()["last"] == 1 })
	for _, a := range other.all() {
		if a.State.Group != b.groups[1] || a.State.Attempt() != 1 {
			b.Errorf("group %s got attempt %d of %s, of group %s", b.groups[1], a.State.Attempt(), a.State.ID, a.State.Group)
		}
	}
	for _, id := range ids {
		b.wantRuns(id, 3)
		if c := len(other.ran(id)); c != 1 {
			b.Errorf("group %s ran %s %d times", b.groups[1], id, c)
		}
	}
	b.dead(n + 1)
	if dead := b.h.DeadLetters(b.T, b.origin, b.groups[1], 0); len(dead) > 0 {
		b.Errorf("%d messages are in the DLQ of a group that failed nothing", len(dead))
	}
}
