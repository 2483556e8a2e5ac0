package adaptertest

import (
	"time"

	"github.com/redeliver/redeliver"
)

// finishesByItsRule closes a service with waiting messages, and opens one that would retry them more often and an
// hour later. The messages keep the retries and waits of the first service's rule, although the second has no such
// levels.
func finishesByItsRule(b *fixture) {
	const n, first, second = 20, 700 * time.Millisecond, 300 * time.Millisecond
	msgs, ids := numberedMessages(n)
	was := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(first, second), Levels: []time.Duration{second, first}}
	is := redeliver.Policy{MaxRetries: 9, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour}}
	old := b.start(Config{Policy: was}, failHandler)
	b.put(msgs...)
	b.await("all have failed under the first", func() bool { // and some twice, on a slow machine
		waited := make(map[string]bool)
		for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
			waited[r.State.ID] = true
		}
		return len(waited) == n
	})
	old.close()
	b.start(Config{Policy: is}, failHandler)
	b.awaitEnds(ids...)
	b.checkNotEarly(func(retry int) time.Duration { return []time.Duration{first, second}[retry] }, ids...)
	b.checkDueTimes(ids...)
	b.wantEach(3, ids...)
	for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
		if want := []time.Duration{first, second}[r.State.Attempts-1]; r.Delay != want || r.State.Schedule != was.Schedule() {
			b.Errorf("%s waits %s after attempt %d, by %q; want %s, by %q", r.State.ID, r.Delay, r.State.Attempts, r.State.Schedule, want, was.Schedule())
		}
	}
	for _, m := range b.dead(n) {
		b.checkReason(b.deadLetterState(m), redeliver.ReasonExhausted, 3)
	}
	b.wantHeadersTrusted()
}

// messagesOfPolicy returns messages that come back after one attempt under another policy, with its rule.
func (b *fixture) messagesOfPolicy(was redeliver.Policy, failed time.Time, names ...string) (msgs []Message) {
	for _, id := range names {
		now := time.Now()
		st := redeliver.State{
			ID: id, Group: b.group, Origin: b.origin, Attempts: 1, Due: now, FirstFailed: now, LastFailed: failed, Error: "old",
			Source: redeliver.Source{Timestamp: now}, Policy: was.Fingerprint(), Schedule: was.Schedule(),
		}
		msgs = append(msgs, Message{ID: id, Body: []byte(id), OwnHeaders: st.AppendHeaders(nil)})
	}
	return msgs
}

// supersedes tests Policy.Supersede. By the schedule in its headers the message would wait for an hour.
func supersedes(b *fixture) {
	p := quickPolicy(2)
	p.Supersede = true
	b.start(Config{Policy: p}, failHandler)
	b.h.PutRetries(b.T, b.origin, b.group, b.messagesOfPolicy(redeliver.Policy{MaxRetries: 9, Backoff: redeliver.Fixed(time.Hour)}, time.Now(), "a")...)
	b.awaitEnds("a")
	if st := b.checkDeadLetter(redeliver.ReasonExhausted, 3); st.ID != "a" {
		b.Errorf("%s is in the DLQ", st.ID)
	}
}

// reportsOtherPolicy puts back messages that failed, by their headers, under another policy long after the start.
func reportsOtherPolicy(b *fixture) {
	b.start(Config{Policy: quickPolicy(2)}, succeed)
	b.h.PutRetries(b.T, b.origin, b.group, b.messagesOfPolicy(redeliver.Policy{MaxRetries: 9}, time.Now().Add(time.Hour), "a", "b", "c")...)
	b.awaitEnds("a", "b", "c")
	reported := b.changesOf(redeliver.ChangePolicyDiffers)
	for _, c := range reported {
		if c.Err == nil || c.Detail == "" || c.Origin != b.origin || c.Group != b.group {
			b.Errorf("reported %+v", c)
		}
	}
	if n := len(reported); n != 1 {
		b.Errorf("another policy was reported %d times, want once", n)
	}
}
