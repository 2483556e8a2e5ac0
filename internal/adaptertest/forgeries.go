package adaptertest

import (
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// forgeries tests that forged headers are reported and not trusted.
func forgeries() []test {
	return []test{
		{name: "RedeliverHeadersOnTheOriginAreNotTrusted", body: forgedOnOrigin},
		{name: "AUsersOwnRedeliverHeadersSurvive", needs: "ForeignHeaders", body: foreign},
		{name: "GarbageNeitherLoopsNorIsDeadLetteredEarly", body: garbage},
	}
}

// copiedHeaders returns the headers of a dead letter of this group that a service has copied.
func copiedHeaders(b *fixture) []Header {
	now := time.Now()
	st := redeliver.State{
		ID: "another", Group: b.group, Origin: b.origin, Attempts: 50, Due: now.Add(time.Hour), FirstFailed: now, LastFailed: now,
		Error: "old", Reason: redeliver.ReasonExhausted,
	}
	hs := []Header{{"mine", []byte("1")}}
	if b.h.ForgeHeaders != nil {
		hs = append(hs, b.h.ForgeHeaders(st)...)
	}
	for _, h := range driver.AppendStateHeaders(st, nil) {
		if b.h.MaxHeaders == 0 || len(hs) < b.h.MaxHeaders-1 {
			hs = append(hs, Header{h.Name, []byte(h.Value)})
		}
	}
	return append(hs, Header{"last", []byte("2")})
}

func forgedOnOrigin(b *fixture) {
	b.start(Config{Policy: quickPolicy(1)}, failHandler)
	b.put(Message{ID: "a", Body: []byte("v"), Headers: copiedHeaders(b)}, namedMessages("neighbour")[0])
	b.awaitEnds("a", "neighbour") // not after an hour
	b.wantRuns("a", 2)
	b.wantRuns("neighbour", 2)
	if first := b.ran("a")[0].State; first.Error != "" || !first.Due.IsZero() || first.Reason != "" {
		b.Errorf("the first attempt trusts %+v", first)
	}
	for _, m := range b.dead(2) {
		b.checkReason(b.deadLetterState(m), redeliver.ReasonExhausted, 2)
	}
	found := eventsOf[redeliver.HeadersIgnored](b.journal)
	if len(found) != 1 || found[0].ID != "a" || found[0].Topic == "" || len(found[0].Findings) < 5 {
		b.Errorf("reported %+v, want every forged header of a, once", found)
	}
}

func foreign(b *fixture) {
	b.start(Config{Policy: quickPolicy(2)}, failHandler)
	m := Message{ID: "a", Body: []byte("v"), Headers: copiedHeaders(b)}
	b.put(m)
	b.awaitEnds("a")
	b.wantRuns("a", 3)
	for _, a := range b.ran("a") {
		b.checkSame("an attempt", a.Seen, m)
	}
	dead := b.dead(1)[0]
	b.checkSame("the dead letter", dead, m)
	b.checkReason(b.deadLetterState(dead), redeliver.ReasonExhausted, 3)
}

// forgedValues returns functions that forge the headers of a message that comes back to a group with two retries. An adapter
// that trusts none of the headers runs the message as new.
func forgedValues(f Features) map[string]func([]driver.Header) []driver.Header {
	with := func(name, value string) func([]driver.Header) []driver.Header {
		return func(hs []driver.Header) []driver.Header {
			if i := slices.IndexFunc(hs, func(h driver.Header) bool { return h.Name == name }); i >= 0 {
				hs[i].Value = value
				return hs
			}
			return append(hs, driver.Header{Name: name, Value: value})
		}
	}
	all := map[string]func([]driver.Header) []driver.Header{
		"negative attempts":  with(redeliver.HeaderAttempt, "-5"),
		"huge attempts":      with(redeliver.HeaderAttempt, "99999999999999999999"),
		"attempts in words":  with(redeliver.HeaderAttempt, "many"),
		"another group":      with(redeliver.HeaderGroup, "somebody-else"),
		"due in words":       with(redeliver.HeaderDue, "soon"),
		"a foreign reason":   with(redeliver.HeaderReason, "because"),
		"first failed never": with(redeliver.HeaderFirstFailed, "never"),
		"a negative place": func(hs []driver.Header) []driver.Header {
			return with(redeliver.HeaderOriginOffset, "-1")(with(redeliver.HeaderOriginPartition, "x")(hs))
		},
		"long text": with(redeliver.HeaderError, strings.Repeat("x", 10*limits.MaxErrorText)),
	}
	if f.DuplicateHeaders {
		all["a thousand due times"] = func(hs []driver.Header) []driver.Header {
			return append(hs, slices.Repeat([]driver.Header{{Name: redeliver.HeaderDue, Value: "9999-12-31T23:59:59Z"}}, 1000)...)
		}
	}
	return all
}

func garbage(b *fixture) {
	b.start(Config{Policy: quickPolicy(2)}, func(a *attempt) error {
		if strings.HasPrefix(a.State.ID, "good") {
			return nil
		}
		return errHandler
	})
	now := time.Now()
	back := func(id string) Message {
		st := redeliver.State{
			ID: id, Group: b.group, Origin: b.origin, Attempts: 1, Due: now, FirstFailed: now, LastFailed: now, Error: "old",
			Source: redeliver.Source{Timestamp: now},
		}
		return Message{ID: id, Body: []byte(id), OwnHeaders: driver.AppendStateHeaders(st, nil)}
	}
	var bad []string
	msgs := []Message{back("good before")}
	for name, spoil := range forgedValues(b.h.Features) {
		m := back(name)
		m.OwnHeaders = spoil(m.OwnHeaders)
		msgs, bad = append(msgs, m), append(bad, name)
	}
	const late = "due in the year 9999" // such a message waits for the longest possible time
	m := back(late)
	for i := range m.OwnHeaders {
		if m.OwnHeaders[i].Name == redeliver.HeaderDue {
			m.OwnHeaders[i].Value = "9999-12-31T23:59:59.999Z"
		}
	}
	msgs = append(msgs, m, back("good behind"))
	b.h.PutRetries(b.T, b.origin, b.group, msgs...)
	b.awaitEnds(append([]string{"good before", "good behind"}, bad...)...)
	found := make(map[string]int)
	for _, f := range eventsOf[redeliver.HeadersIgnored](b.journal) {
		found[f.ID]++
	}
	for _, id := range bad {
		// Two if its earlier attempt is trusted, otherwise three.
		if n := len(b.ran(id)); n != 2 && n != 3 {
			b.Errorf("%s ran %d times, want 2 or 3", id, n)
		}
		if found[id] != 1 {
			b.Errorf("%s was reported %d times, want once", id, found[id])
		}
	}
	if n := len(b.ran(late)); n != 0 || found[late] != 1 {
		b.Errorf("%s ran %d times and was reported %d times, want 0 and 1", late, n, found[late])
	}
	for _, id := range []string{"good before", "good behind"} {
		if as := b.ran(id); len(as) != 1 || as[0].State.Attempt() != 2 || found[id] != 0 {
			b.Errorf("%s ran as attempts %v, want 2; it was reported %d times", id, numbers(as), found[id])
		}
	}
	for _, m := range b.dead(len(bad)) {
		if st := b.deadLetterState(m); st.Reason != redeliver.ReasonExhausted || st.Attempts != 3 {
			b.Errorf("%s is in the DLQ as %s after %d attempts, want exhausted after 3", st.ID, st.Reason, st.Attempts)
		}
	}
}
