package adaptertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// errHandler is the error of the kit's handlers.
var errHandler = errors.New("card declined")

// fixture is the environment of one test: an origin, its groups, and a journal.
type fixture struct {
	*testing.T
	*journal
	h             Harness
	origin, group string
	groups        []string
	form          form
	nacks         bool // the test's handlers run without middleware, or nack
}

func newFixture(t *testing.T, h Harness, c test) *fixture {
	t.Helper()
	b := &fixture{T: t, journal: newJournal(), h: h, form: c.form}
	b.origin, b.groups = h.Origin(t, max(1, c.groups))
	b.group = b.groups[0]
	t.Cleanup(b.checkNoNack)
	return b
}

// checkNoNack checks that no failed message was nacked without an error. A subscriber treats such a nack as a failure,
// so most tests of retries would pass without middleware.
func (b *fixture) checkNoNack() {
	if b.nacks {
		return
	}
	for _, e := range eventsOf[redeliver.RetryScheduled](b.journal) {
		if errors.Is(e.Err, redeliver.ErrNacked) {
			b.Errorf("attempt %d of %s was a nack without an error", e.State.Attempts, e.State.ID)
		}
	}
	for _, e := range eventsOf[redeliver.DeadLettered](b.journal) {
		if errors.Is(e.Err, redeliver.ErrNacked) {
			b.Errorf("%s was dead-lettered for a nack without an error", e.State.ID)
		}
	}
}

// quickPolicy returns a policy whose retries wait 100 ms.
func quickPolicy(retries int) redeliver.Policy {
	return redeliver.Policy{MaxRetries: retries, Backoff: redeliver.Fixed(100 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond}}
}

// namedMessages returns messages with their names as ids and bodies.
func namedMessages(names ...string) []Message {
	msgs := make([]Message, len(names))
	for i, n := range names {
		msgs[i] = Message{ID: n, Body: []byte(n)}
	}
	return msgs
}

// numberedMessages returns n messages and their ids.
func numberedMessages(n int) ([]Message, []string) {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m-%03d", i)
	}
	return namedMessages(names...), names
}

// put writes messages to the origin.
func (b *fixture) put(msgs ...Message) {
	b.Helper()
	b.h.Put(b.T, b.origin, msgs...)
}

// underOneKey gives all messages one key, if there are keys.
func (b *fixture) underOneKey(msgs []Message) []Message {
	if b.h.Features.OrderFirstAttempts {
		for i := range msgs {
			msgs[i].Key = []byte("the same")
		}
	}
	return msgs
}

// await waits until ok returns true, see journal.await.
func (b *fixture) await(what string, ok func() bool, ids ...string) {
	b.Helper()
	b.journal.await(b.T, what, ok, ids...)
}

// hold waits until a channel is closed or the test ends.
func (b *fixture) hold(until <-chan struct{}) {
	select {
	case <-until:
	case <-b.Context().Done():
	}
}

// handled puts messages and waits until each is committed or dead-lettered.
func (b *fixture) handled(ids ...string) {
	b.Helper()
	b.put(namedMessages(ids...)...)
	b.awaitEnds(ids...)
}

// awaitCommits waits until each message is committed.
func (b *fixture) awaitCommits(ids ...string) {
	b.Helper()
	b.await(fmt.Sprintf("all of %d messages are committed", len(ids)), func() bool {
		committed, _ := b.ended()
		return !slices.ContainsFunc(ids, func(id string) bool { return committed[id] == 0 })
	}, ids...)
}

// haveEnded reports whether each message was committed or dead-lettered.
func (b *fixture) haveEnded(ids ...string) bool {
	committed, dead := b.ended()
	return !slices.ContainsFunc(ids, func(id string) bool { return committed[id]+dead[id] == 0 })
}

// awaitEnds waits until each message is committed or dead-lettered.
func (b *fixture) awaitEnds(ids ...string) {
	b.Helper()
	b.await(fmt.Sprintf("all of %d messages end in a commit or the DLQ", len(ids)), func() bool { return b.haveEnded(ids...) }, ids...)
}

// dead returns the n messages in the DLQ of the first group.
func (b *fixture) dead(n int) []Message {
	b.Helper()
	msgs := b.h.DeadLetters(b.T, b.origin, b.group, n)
	if len(msgs) != n {
		logLines(b.T, b.missedIn(msgs))
		b.Fatalf("%d messages are in the DLQ, want %d", len(msgs), n)
	}
	return msgs
}

// deadLetterState parses the headers of a dead letter, which must be valid.
func (b *fixture) deadLetterState(m Message) redeliver.State {
	b.Helper()
	if len(m.OwnHeaders) == 0 {
		b.Errorf("dead letter %q has no redeliver headers", m.Body)
	}
	st, findings := driver.ParseHeaders(b.group, m.OwnHeaders)
	for _, f := range findings {
		b.Errorf("dead letter %q: %s", m.Body, f)
	}
	return st
}

// checkDeadLetter checks that one message is in the DLQ, for this reason and after this many attempts.
func (b *fixture) checkDeadLetter(reason redeliver.Reason, attempts int) redeliver.State {
	b.Helper()
	st := b.deadLetterState(b.dead(1)[0])
	b.checkReason(st, reason, attempts)
	return st
}

func (b *fixture) checkReason(st redeliver.State, reason redeliver.Reason, attempts int) {
	b.Helper()
	if st.Reason != reason || st.Attempts != attempts {
		b.Errorf("%s is in the DLQ as %q after %d attempts (%s), want %q after %d", st.ID, st.Reason, st.Attempts, st.Error, reason, attempts)
	}
}

// wantRuns checks the numbers of a message's attempts.
func (b *fixture) wantRuns(id string, n int) {
	b.Helper()
	if got := numbers(b.ran(id)); !slices.Equal(got, upTo(n)) {
		logLines(b.T, b.historyOf(id))
		b.Fatalf("%s ran as attempts %v, want %v", id, got, upTo(n))
	}
}

// wantEach is wantRuns for several messages.
func (b *fixture) wantEach(n int, ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.wantRuns(id, n)
	}
}

// wantHeadersTrusted checks that no header of redeliver was ignored.
func (b *fixture) wantHeadersTrusted() {
	b.Helper()
	if found := eventsOf[redeliver.HeadersIgnored](b.journal); len(found) > 0 {
		b.Errorf("headers are not trusted: %+v", found[0])
	}
}

// changesOf returns the events so far about one change of the subscription.
func (b *fixture) changesOf(change redeliver.Change) (all []redeliver.SubscriptionChanged) {
	for _, e := range eventsOf[redeliver.SubscriptionChanged](b.journal) {
		if e.Change == change {
			all = append(all, e)
		}
	}
	return all
}

// checkNotEarly checks that retries begin at least than(retry) after the attempt before. retry counts from 0. If a kill
// made duplicates, the first copy counts, because all retries were planned after it.
func (b *fixture) checkNotEarly(than func(retry int) time.Duration, ids ...string) {
	b.Helper()
	for _, id := range ids {
		ended := make(map[int]time.Time) // by attempt, of the first copy
		as := b.ran(id)
		for _, a := range as {
			n := a.State.Attempt()
			if was, ok := ended[n]; !a.Ended.IsZero() && (!ok || a.Ended.Before(was)) {
				ended[n] = a.Ended
			}
		}
		for _, a := range as {
			before, ok := ended[a.State.Attempts]
			if !ok {
				continue
			}
			if waited, minWait := a.Began.Sub(before), than(a.State.Attempts-1); waited < minWait {
				b.Errorf("attempt %d of %s came %s after the one before it, want at least %s", a.State.Attempt(), id, waited, minWait)
			}
		}
	}
}

// constantDelay returns the same wait for every retry.
func constantDelay(d time.Duration) func(int) time.Duration {
	return func(int) time.Duration { return d }
}
