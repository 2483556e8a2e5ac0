package adaptertest

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// fidelity tests that a message stays as it was published (promise 7).
func fidelity() []test {
	return []test{
		{name: "AMessageIsUnchangedAtEveryAttemptAndInTheDLQ", body: unchanged},
	}
}

// unusualMessages returns messages with unusual content, as far as the broker supports it.
func unusualMessages(f Features) []Message {
	binary := []byte{0, 0xff, 0xfe, 'x', 0}
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	msgs := []Message{
		{ID: "plain", Body: []byte("v"), Headers: []Header{{"z", []byte("1")}, {"a", []byte("2")}}},
		{ID: "empty", Body: []byte{}},
		{ID: "binary", Body: every},
		{ID: "large", Body: bytes.Repeat([]byte("0123456789abcdef"), 4<<10)}, // 64 KiB
		{ID: "text", Body: []byte("grüße \u2028 <&>"), Headers: []Header{{"empty", []byte{}}, {"gruß", []byte("é\n\"")}, {"Upper-Case", []byte("x")}}},
	}
	if f.NullBody {
		msgs = append(msgs, Message{ID: "null", Body: nil})
	}
	if f.BinaryHeaders {
		msgs = append(msgs, Message{ID: "binary header", Body: []byte("v"), Headers: []Header{{"bin", binary}, {"every", every}}})
	}
	if f.DuplicateHeaders {
		msgs = append(msgs, Message{ID: "duplicates", Body: []byte("v"), Headers: []Header{
			{"z", []byte("1")}, {"a", []byte("2")}, {"z", []byte("3")}, {"z", []byte("1")}, {"b", []byte("4")},
		}})
	}
	if f.OrderFirstAttempts {
		msgs = append(msgs, Message{ID: "key", Key: []byte("k"), Body: []byte("v")}, Message{ID: "binary key", Key: binary, Body: []byte("v")})
	}
	return msgs
}

func unchanged(b *fixture) {
	msgs := unusualMessages(b.h.Features)
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		ids[i] = m.ID
	}
	// The first wait needs one level. The second needs a hop, and holds the message for the rest.
	p := redeliver.Policy{
		MaxRetries: 2, Backoff: redeliver.Steps(100*time.Millisecond, 450*time.Millisecond),
		Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
	}
	b.start(Config{Policy: p}, func(a *attempt) error {
		if a.Msg == nil {
			return errHandler // a record in the broker's own form is the client's
		}
		// Changes that a handler makes to its message do not affect the retry.
		for i := range a.Msg.Payload {
			a.Msg.Payload[i] = '!'
		}
		a.Msg.Payload = append(a.Msg.Payload, "more"...)
		a.Msg.Metadata.Set("z", "changed")
		a.Msg.Metadata.Set("new", "header")
		return errHandler
	})
	b.put(msgs...)
	b.awaitEnds(ids...)
	for _, m := range msgs {
		b.wantRuns(m.ID, 3)
		as := b.ran(m.ID)
		for i, a := range as {
			what := "attempt " + strconv.Itoa(i+1) + " of " + m.ID
			b.checkSame(what, a.Seen, m)
			b.checkSameBody(what+" as Watermill's message", a.Payload, m.Body)
			if a.UUID != m.ID {
				b.Errorf("%s has UUID %q", what, a.UUID)
			}
			if !maps.Equal(a.Metadata, as[0].Metadata) || a.Metadata["new"] != "" {
				b.Errorf("%s has metadata %q, the first attempt %q", what, a.Metadata, as[0].Metadata)
			}
			for _, h := range m.Headers {
				// Values that are not text may be missing from a map of strings.
				if _, ok := a.Metadata[h.Name]; !ok && utf8.Valid(h.Value) {
					b.Errorf("%s has metadata %q, want a %s in it", what, a.Metadata, h.Name)
				}
			}
		}
	}
	for _, m := range b.dead(len(msgs)) {
		id := b.deadLetterState(m).ID
		i := slices.Index(ids, id)
		if i < 0 {
			b.Errorf("a dead letter says that it is %q", id)
			continue
		}
		b.checkSame("the dead letter of "+id, m, msgs[i])
	}
}

// checkSame compares the user's part of a message.
func (b *fixture) checkSame(what string, got, want Message) {
	b.Helper()
	if got.ID != want.ID {
		b.Errorf("%s has UUID %q, want %q", what, got.ID, want.ID)
	}
	if b.h.Features.OrderFirstAttempts && (!bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil)) {
		b.Errorf("%s has key %s, want %s", what, show(got.Key), show(want.Key))
	}
	b.checkSameBody(what, got.Body, want.Body)
	b.checkSameHeaders(what, got.Headers, want.Headers)
}

func (b *fixture) checkSameBody(what string, got, want []byte) {
	b.Helper()
	if !bytes.Equal(got, want) || b.h.Features.NullBody && (got == nil) != (want == nil) {
		b.Errorf("%s has body %s, want %s", what, show(got), show(want))
	}
}

// checkSameHeaders compares headers, in order if they have one.
func (b *fixture) checkSameHeaders(what string, got, want []Header) {
	b.Helper()
	g, w := texts(got), texts(want)
	if !b.h.Features.DuplicateHeaders {
		slices.Sort(g)
		slices.Sort(w)
	}
	if !slices.Equal(g, w) {
		b.Errorf("%s has headers %s, want %s", what, strings.Join(g, " "), strings.Join(w, " "))
	}
}

func texts(hs []Header) []string {
	ts := make([]string, len(hs))
	for i, h := range hs {
		ts[i] = strconv.Quote(h.Name) + "=" + strconv.Quote(string(h.Value))
	}
	return ts
}

func show(v []byte) string {
	if v == nil {
		return "null"
	}
	return strconv.Quote(limits.Cut(string(v), 80)) + " of " + strconv.Itoa(len(v)) + " bytes"
}
