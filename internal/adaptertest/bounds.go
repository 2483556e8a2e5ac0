package adaptertest

import (
	"errors"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// bounds tests that headers are bounded (promise 6).
func bounds() []test {
	return []test{
		{name: "ALongErrorIsCut", body: longError},
		{name: "CredentialsInURLsAreRemoved", body: credentials},
	}
}

// longError has an error text of a mebibyte, which brokers would refuse as a header.
func longError(b *fixture) {
	long := errors.New(strings.Repeat("no card 4711; ", 1<<20/14) + "the end")
	b.start(Config{Policy: quickPolicy(1)}, func(*attempt) error { return long })
	b.handled("a")
	b.wantRuns("a", 2)
	m := b.dead(1)[0]
	size := 0
	for _, h := range m.OwnHeaders {
		size += len(h.Name) + len(h.Value)
	}
	if size > limits.MaxHeaderBytes {
		b.Errorf("our headers are %d bytes, want at most %d", size, limits.MaxHeaderBytes)
	}
	st := b.deadLetterState(m)
	if n := len(st.Error); n > limits.MaxErrorText || n < limits.MaxErrorText/2 || !strings.HasPrefix(st.Error, "no card 4711") {
		b.Errorf("the dead letter's error has %d bytes, want about %d: %.40q", n, limits.MaxErrorText, st.Error)
	}
	b.checkReason(st, redeliver.ReasonExhausted, 2)
}

func credentials(b *fixture) {
	const secret = "hunter2"
	b.start(Config{Policy: quickPolicy(1)}, func(a *attempt) error {
		if a.State.Attempts > 0 && (strings.Contains(a.State.Error, secret) || !strings.Contains(a.State.Error, "db:5432")) {
			b.Errorf("the handler gets %q", a.State.Error)
		}
		return errors.New("dial postgres://billing:" + secret + "@db:5432/cards: refused")
	})
	b.handled("a")
	m := b.dead(1)[0]
	for _, h := range m.OwnHeaders {
		if strings.Contains(h.Value, secret) {
			b.Errorf("the header %s says %q", h.Name, h.Value)
		}
	}
	if st := b.deadLetterState(m); !strings.Contains(st.Error, "db:5432/cards: refused") {
		b.Errorf("the dead letter says %q, want the address without its password", st.Error)
	}
	for _, e := range eventsOf[redeliver.RetryScheduled](b.journal) {
		if strings.Contains(e.State.Error, secret) || e.State.LastFailed.After(time.Now()) {
			b.Errorf("the sink got %+v", e.State)
		}
	}
}
