package adaptertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// attempts tests what counts as an attempt, and what the handler and the DLQ report about it.
func attempts() []test {
	return []test{
		{name: "TheHandlerSeesAttemptsOneToMaxRetriesPlusOne", body: countsAttempts},
		{name: "TheDeadLetterHasReasonErrorAndTimes", body: deadLetterSaysWhy},
		{name: "NoRetriesMeansOneAttempt", body: noRetries},
		{name: "ARetryThatSucceedsIsCommitted", body: retrySucceeds},
		{name: "TheIDStaysTheSameThroughAllAttemptsAndTheDLQ", body: sameID},
		{name: "AProducersIDNeverEqualsADerivedOne", body: takenID},
		{name: "ImmediateRetriesRunAtOnceAndCount", body: immediate},
		{name: "ANackWithoutAnErrorIsAnAttempt", router: true, body: nackCounts},
		{name: "ANackRunsAgainAfterNackDelay", router: true, body: nackDelay},
		{name: "APostponedMessageCountsNoAttempt", body: postponed},
	}
}

func countsAttempts(b *fixture) {
	b.start(Config{Policy: quickPolicy(3)}, failHandler)
	b.handled("a")
	b.wantRuns("a", 4)
	var first time.Time
	for i, a := range b.ran("a") {
		st := a.State
		if st.Group != b.group || st.Origin != b.origin || st.Attempts != i {
			b.Errorf("attempt %d has the state of %d attempts, group %q, origin %q; want group %q, origin %q", i+1, st.Attempts, st.Group, st.Origin, b.group, b.origin)
		}
		if st.Reason != "" {
			b.Errorf("attempt %d has the reason %q of a dead letter", i+1, st.Reason)
		}
		switch i {
		case 0:
			if st.Error != "" || !st.FirstFailed.IsZero() || !st.LastFailed.IsZero() || !st.Due.IsZero() {
				b.Errorf("the first attempt has a retry's state: %+v", st)
			}
		case 1:
			first = st.FirstFailed
			fallthrough
		default:
			if st.Error != errHandler.Error() || st.FirstFailed.IsZero() || !st.FirstFailed.Equal(first) || st.LastFailed.Before(first) || st.Due.IsZero() {
				b.Errorf("attempt %d has the state %+v", i+1, st)
			}
		}
	}
	b.checkDeadLetter(redeliver.ReasonExhausted, 4)
}

func deadLetterSaysWhy(b *fixture) {
	begin := time.Now().Truncate(time.Millisecond)
	b.start(Config{Policy: quickPolicy(2)}, func(a *attempt) error { return fmt.Errorf("try %d: %w", a.State.Attempt(), errHandler) })
	b.handled("a")
	end := time.Now()
	for i, a := range b.ran("a") {
		if want := map[bool]string{true: "try 1: card declined"}[i == 2]; a.State.FirstError != want {
			b.Errorf("attempt %d got the first error %q, want %q", i+1, a.State.FirstError, want)
		}
	}
	st := b.checkDeadLetter(redeliver.ReasonExhausted, 3)
	if st.ID != "a" || st.Group != b.group || st.Origin != b.origin {
		b.Errorf("the dead letter says that it is %q of group %q from %q, want a, %q, %q", st.ID, st.Group, st.Origin, b.group, b.origin)
	}
	if st.Error != "try 3: card declined" || st.ErrorType == "" || st.FirstError != "try 1: card declined" {
		b.Errorf("the dead letter says %q of type %q, and first %q, want the latest error, its type, and the first error", st.Error, st.ErrorType, st.FirstError)
	}
	if st.FirstFailed.Before(begin) || !st.LastFailed.After(st.FirstFailed) || st.LastFailed.After(end) {
		b.Errorf("failed first at %s and last at %s, want within %s and %s", st.FirstFailed, st.LastFailed, begin, end)
	}
	as := b.ran("a")
	for _, c := range []struct {
		name string
		at   time.Time
		a    attempt
	}{{"first", st.FirstFailed, as[0]}, {"last", st.LastFailed, as[2]}} {
		if c.at.Before(c.a.Ended.Truncate(time.Millisecond)) {
			b.Errorf("the %s failure is said to have been at %s, the attempt ended at %s", c.name, c.at, c.a.Ended)
		}
	}
	if st.FirstFailed.After(as[1].Began) {
		b.Errorf("the first failure is said to have been at %s, after the second attempt, %s", st.FirstFailed, as[1].Began)
	}
	reported := eventsOf[redeliver.DeadLettered](b.journal)
	if len(reported) != 1 || reported[0].Where == "" || reported[0].State.Reason != st.Reason || reported[0].State.Attempts != st.Attempts || reported[0].State.FirstError != st.FirstError {
		b.Errorf("the sink got %+v, the headers say %+v", reported, st)
	}
}

func noRetries(b *fixture) {
	b.start(Config{Policy: quickPolicy(redeliver.NoRetries)}, failHandler)
	b.handled("a")
	b.wantRuns("a", 1)
	b.checkDeadLetter(redeliver.ReasonExhausted, 1)
}

func retrySucceeds(b *fixture) {
	p := b.start(Config{Policy: quickPolicy(3)}, failFirst(2))
	b.handled("a")
	p.close()
	b.start(Config{Policy: quickPolicy(3)}, succeed)
	b.handled("last")
	b.wantRuns("a", 3)
	b.dead(0)
}

func sameID(b *fixture) {
	b.start(Config{Policy: quickPolicy(2)}, failHandler)
	b.put(Message{ID: "given", Body: []byte("one")}, Message{Body: []byte("two")}, Message{Body: []byte("three")})
	awaitEvents[redeliver.DeadLettered](b, 3)
	ids := make(map[string]string) // by body
	runs := make(map[string]int)
	for _, a := range b.all() {
		body := string(a.Payload)
		runs[body]++
		if ids[body] == "" {
			ids[body] = a.State.ID
		}
		if a.State.ID == "" || a.State.ID != ids[body] {
			b.Errorf("attempt %d of %s has id %q, the first had %q", a.State.Attempt(), body, a.State.ID, ids[body])
		}
		if a.UUID == "" || body == "one" && a.UUID != "given" {
			b.Errorf("the handler got %s with UUID %q", body, a.UUID)
		}
	}
	for body, n := range runs {
		if n != 3 {
			b.Errorf("%s ran %d times, want 3", body, n)
		}
	}
	if ids["one"] != "given" || ids["two"] == ids["three"] {
		b.Errorf("ids %v, want the given one and two different ones", ids)
	}
	for _, m := range b.dead(3) {
		if st := b.deadLetterState(m); st.ID != ids[string(m.Body)] {
			b.Errorf("%s is in the DLQ as %q, ran as %q", m.Body, st.ID, ids[string(m.Body)])
		}
		if (m.ID == "given") != (string(m.Body) == "one") {
			b.Errorf("%s is in the DLQ with UUID %q", m.Body, m.ID)
		}
	}
}

// takenID tests that a producer's id may look like one that redeliver derives.
func takenID(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, failFirst(1))
	b.put(Message{ID: "payments/0/11", Body: []byte("one")}, Message{ID: "derived:00ff", Body: []byte("two")})
	awaitEvents[redeliver.Committed](b, 2)
	want := map[string]string{"one": "given:payments/0/11", "two": "given:derived:00ff"}
	runs := make(map[string]int)
	for _, a := range b.all() {
		body := string(a.Payload)
		if runs[body]++; a.State.ID != want[body] {
			b.Errorf("attempt %d of %s has id %q, want %q", a.State.Attempt(), body, a.State.ID, want[body])
		}
	}
	if runs["one"] != 2 || runs["two"] != 2 {
		b.Errorf("they ran %v times, want twice each", runs)
	}
}

func immediate(b *fixture) {
	p := quickPolicy(3)
	p.Immediate, p.Backoff = 2, redeliver.Fixed(200*time.Millisecond)
	b.start(Config{Policy: p}, failHandler)
	b.handled("a")
	b.wantRuns("a", 4)
	b.checkDeadLetter(redeliver.ReasonExhausted, 4)
	if reported := eventsOf[redeliver.RetryScheduled](b.journal); len(reported) != 1 || reported[0].State.Attempts != 3 {
		b.Errorf("scheduled %+v, want one wait, after attempt 3", reported)
	}
	b.checkNotEarly(func(retry int) time.Duration {
		if retry < 2 {
			return 0
		}
		return 200 * time.Millisecond
	}, "a")
}

// nackCounts runs without the middleware, so the Router nacks.
func nackCounts(b *fixture) {
	b.nacks = true
	b.startAs(b.group, b.journal, Config{Policy: quickPolicy(2)}, failHandler)
	b.handled("a")
	b.wantRuns("a", 3)
	b.checkNotEarly(constantDelay(100*time.Millisecond), "a")
	if st := b.checkDeadLetter(redeliver.ReasonExhausted, 3); !strings.Contains(st.Error, "Add router.AddMiddleware(middleware.Retry())") {
		b.Errorf("the dead letter says %q, want that it was nacked and that the middleware is missing", st.Error)
	}
	if reported := b.changesOf(redeliver.ChangeRetryMissing); len(reported) != 1 {
		b.Errorf("the missing middleware was reported %d times, want once", len(reported))
	}
}

func nackDelay(b *fixture) {
	b.nacks = true
	slow := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{100 * time.Millisecond, time.Hour}}
	b.startAs(b.group, b.journal, Config{Policy: slow, NackDelay: 300 * time.Millisecond}, failHandler)
	b.put(namedMessages("a")...)
	b.awaitEnds("a") // not after an hour
	b.wantRuns("a", 2)
	b.checkNotEarly(constantDelay(300*time.Millisecond), "a")
}

func postponed(b *fixture) {
	b.start(Config{Policy: quickPolicy(redeliver.NoRetries)}, func(*attempt) error {
		if len(b.ran("a")) <= 3 {
			return redeliver.Postpone(errHandler)
		}
		return errHandler
	})
	b.handled("a")
	as := b.ran("a")
	if len(as) != 4 {
		b.Fatalf("%d attempts, want 3 that are postponed and one that is not", len(as))
	}
	for i, a := range as {
		if a.State.Attempt() != 1 {
			b.Errorf("run %d is attempt %d, want 1: nothing was counted", i+1, a.State.Attempt())
		}
		if (i > 0) == a.State.PostponedSince.IsZero() {
			b.Errorf("run %d is said to be postponed since %s", i+1, a.State.PostponedSince)
		}
		if i > 0 && a.Began.Sub(as[i-1].Ended) < 100*time.Millisecond {
			b.Errorf("run %d came %s after the one before it, want at least 100ms", i+1, a.Began.Sub(as[i-1].Ended))
		}
	}
	if n := len(eventsOf[redeliver.MessagePostponed](b.journal)); n != 3 {
		b.Errorf("postponed %d times, want 3", n)
	}
	b.checkDeadLetter(redeliver.ReasonExhausted, 1)
}
