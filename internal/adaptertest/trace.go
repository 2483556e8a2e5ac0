package adaptertest

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// traces tests that a message keeps the trace of its latest attempt.
func traces() []test {
	return []test{{name: "TheTraceOfTheLatestAttemptTravelsWithTheMessage", body: traceTravels}}
}

// traceTravels uses processes without a tracer. They keep the trace that one with a tracer wrote.
func traceTravels(b *fixture) {
	const run = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	now := time.Now()
	st := redeliver.State{
		ID: "a", Group: b.group, Origin: b.origin, Attempts: 1, Due: now, FirstFailed: now, LastFailed: now, Error: "old",
		Source: redeliver.Source{Timestamp: now}, Trace: run,
	}
	b.start(Config{Policy: quickPolicy(2)}, failHandler)
	b.h.PutRetries(b.T, b.origin, b.group, Message{ID: "a", Body: []byte("v"), OwnHeaders: driver.AppendStateHeaders(st, nil)})
	b.awaitEnds("a")
	if got := numbers(b.ran("a")); !slices.Equal(got, []int{2, 3}) {
		b.Fatalf("it ran as attempts %v, want 2 and 3", got)
	}
	for _, a := range b.ran("a") {
		if a.State.Trace != run {
			b.Errorf("attempt %d comes after %q, want %q", a.State.Attempt(), a.State.Trace, run)
		}
	}
	if st := b.checkDeadLetter(redeliver.ReasonExhausted, 3); st.Trace != run {
		b.Errorf("the dead letter comes after %q, want %q", st.Trace, run)
	}
	b.wantHeadersTrusted()
}
