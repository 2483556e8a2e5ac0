package adaptertest

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// deadlines tests that a message does not run after its expiry.
func deadlines() []test {
	return []test{
		{name: "AnExpiredMessageNeverRuns", body: expiredBefore},
		{name: "AMessageOlderThanMaxAgeNeverRuns", needs: "MessageTimes", body: olderThanMaxAge},
		{name: "ARetryAfterTheExpiryGoesToTheDLQAtOnce", body: expiresBeforeRetry},
		{name: "AnExpiredMessageRunsWhenReplayed", body: expiredReplay},
	}
}

// expires returns the header that sets an expiry.
func expires(value string) Header { return Header{redeliver.HeaderExpires, []byte(value)} }

func timeIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

func expiredBefore(b *fixture) {
	p := b.start(Config{Policy: quickPolicy(1)}, succeed)
	over := message.NewMessage("published", []byte("published"))
	redeliver.SetExpires(over.Metadata, time.Now().Add(-time.Minute))
	if err := p.svc.Publisher().Publish(b.origin, over); err != nil {
		b.Fatal(err)
	}
	b.put(b.underOneKey([]Message{
		{ID: "over", Body: []byte("over"), Headers: []Header{expires(timeIn(-time.Second)), {"trace", []byte("t-1")}}},
		{ID: "in time", Body: []byte("in time"), Headers: []Header{expires(timeIn(time.Hour))}},
		{ID: "unreadable", Body: []byte("unreadable"), Headers: []Header{expires("tomorrow")}},
		{ID: "plain", Body: []byte("plain")},
	})...)
	b.awaitEnds("published", "over", "in time", "unreadable", "plain")
	for id, runs := range map[string]int{"published": 0, "over": 0, "in time": 1, "unreadable": 1, "plain": 1} {
		b.wantRuns(id, runs)
	}
	for _, m := range b.dead(2) {
		b.checkReason(b.deadLetterState(m), redeliver.ReasonExpired, 0)
	}
	for _, e := range eventsOf[redeliver.HeadersIgnored](b.journal) {
		if e.ID != "unreadable" {
			b.Errorf("the headers of %s are ignored: %v", e.ID, e.Findings)
		}
	}
	awaitEvents[redeliver.HeadersIgnored](b, 1)
}

func expiresBeforeRetry(b *fixture) {
	p := quickPolicy(3)
	p.Backoff = redeliver.Fixed(3 * time.Minute)
	b.start(Config{Policy: p}, failHandler)
	b.put(Message{ID: "a", Body: []byte("a"), Headers: []Header{expires(timeIn(2 * time.Minute))}})
	b.awaitEnds("a")
	b.checkReason(b.deadLetterState(b.dead(1)[0]), redeliver.ReasonExpired, 1)
}

func expiredReplay(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, succeed)
	st := redeliver.State{ID: "a", Group: b.group, Origin: b.origin, Replays: 1, Replayed: time.Now()}
	b.h.PutRetries(b.T, b.origin, b.group, Message{
		ID: "a", Body: []byte("a"), Headers: []Header{expires(timeIn(-time.Hour))}, OwnHeaders: driver.AppendStateHeaders(st, nil),
	})
	b.awaitEnds("a")
	b.wantRuns("a", 1)
	b.dead(0)
}

// olderThanMaxAge checks that a message does not run when it has waited for longer than MaxAge for its first attempt.
func olderThanMaxAge(b *fixture) {
	p := quickPolicy(1)
	p.MaxAge = 10 * time.Second
	begun, over := make(chan struct{}), make(chan struct{})
	b.start(Config{Policy: p, MaxInFlight: 1}, func(a *attempt) error {
		if a.State.ID == "first" {
			close(begun)
			<-over
		}
		return nil
	})
	b.put(Message{ID: "first", Body: []byte("first")})
	<-begun
	b.put(Message{ID: "old", Body: []byte("old")})
	<-time.After(p.MaxAge + 1500*time.Millisecond) // the time of a message may be in whole seconds
	close(over)
	b.awaitEnds("first", "old")
	b.wantRuns("first", 1)
	b.wantRuns("old", 0)
	b.checkReason(b.deadLetterState(b.dead(1)[0]), redeliver.ReasonExpired, 0)
}
