package adaptertest

import (
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// changesPolicy closes a service with waiting messages, and opens one with another policy. The waits that have begun keep
// their due times. From the next failure on the second policy decides: about the retries, and about the waits.
func changesPolicy(b *fixture) {
	const n, first, second, retries = 20, 700 * time.Millisecond, 300 * time.Millisecond, 2
	msgs, ids := numberedMessages(n)
	was := redeliver.Policy{MaxRetries: 9, Backoff: redeliver.Fixed(first), Levels: []time.Duration{first}}
	is := redeliver.Policy{MaxRetries: retries, Backoff: redeliver.Fixed(second), Levels: []time.Duration{100 * time.Millisecond, second}}
	old := b.start(Config{Policy: was}, failHandler)
	b.put(msgs...)
	failedUnderFirst := func() map[string]int { // attempts by id
		failed := make(map[string]int)
		for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
			failed[r.State.ID] = r.State.Attempts
		}
		return failed
	}
	b.await("all have failed under the first", func() bool { return len(failedUnderFirst()) == n }) // and some twice, on a slow machine
	old.close()
	failed := failedUnderFirst()
	b.start(Config{Policy: is}, failHandler)
	b.awaitEnds(ids...)
	b.checkDueTimes(ids...)
	for _, r := range eventsOf[redeliver.RetryScheduled](b.journal) {
		want := first
		if r.State.Attempts > failed[r.State.ID] {
			want = second
		}
		if r.Delay != want {
			b.Errorf("%s waits %s after attempt %d, %d of them under the first policy; want %s", r.State.ID, r.Delay, r.State.Attempts, failed[r.State.ID], want)
		}
	}
	for _, m := range b.dead(n) {
		st := b.deadLetterState(m)
		b.checkReason(st, redeliver.ReasonExhausted, max(retries, failed[st.ID])+1)
	}
	b.wantHeadersTrusted()
}

// messagesOfPolicy returns messages that come back after one attempt under another policy.
func (b *fixture) messagesOfPolicy(was redeliver.Policy, failed time.Time, names ...string) (msgs []Message) {
	for _, id := range names {
		now := time.Now()
		st := redeliver.State{
			ID: id, Group: b.group, Origin: b.origin, Attempts: 1, Due: now, FirstFailed: now, LastFailed: failed, Error: "old",
			Source: redeliver.Source{Timestamp: now}, Policy: was.Fingerprint(),
		}
		msgs = append(msgs, Message{ID: id, Body: []byte(id), OwnHeaders: driver.AppendStateHeaders(st, nil)})
	}
	return msgs
}

// ignoresSchedule puts back a message with a header of the older form: a schedule of that policy follows the fingerprint, by
// which the message would wait for an hour.
func ignoresSchedule(b *fixture) {
	b.start(Config{Policy: quickPolicy(2)}, failHandler)
	msgs := b.messagesOfPolicy(redeliver.Policy{MaxRetries: 9, Backoff: redeliver.Fixed(time.Hour)}, time.Now(), "a")
	for i, h := range msgs[0].OwnHeaders {
		if h.Name == redeliver.HeaderPolicy {
			msgs[0].OwnHeaders[i].Value += " 1;9;1h*10"
		}
	}
	b.h.PutRetries(b.T, b.origin, b.group, msgs...)
	b.awaitEnds("a")
	if st := b.checkDeadLetter(redeliver.ReasonExhausted, 3); st.ID != "a" {
		b.Errorf("%s is in the DLQ", st.ID)
	}
	b.wantHeadersTrusted()
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
