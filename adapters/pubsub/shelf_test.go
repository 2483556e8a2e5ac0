package pubsub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// dead is a message as redeliver writes it into a DLQ.
func dead(tb testing.TB, id, body string) *message.Message {
	tb.Helper()
	st := redeliver.State{ID: id, Group: "billing", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted, LastFailed: time.Unix(1_700_000_000, 0).UTC()}
	rec := &record{uuid: id, payload: []byte(body), metadata: message.Metadata{"tenant": "acme", "raw": "\x00\xff"}}
	msg, err := rec.with(&carried{headers: st.AppendHeaders(nil)})
	if err != nil {
		tb.Fatal(err)
	}
	return msg
}

func lettersOf(tb testing.TB, from, n int) (all []*letter) {
	tb.Helper()
	for i := range n {
		all = append(all, letterOf(dead(tb, fmt.Sprintf("m-%04d", from+i), "body"), time.Now()))
	}
	return all
}

func writer(tb testing.TB, s shelf) *shelfWriter {
	tb.Helper()
	w, err := newWriter(s)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = w.close() }) // perhaps before
	return w
}

// on returns the ids of what is in the files of a shelf, settled or not.
func (s shelf) on(tb testing.TB) (ids []string) {
	tb.Helper()
	bases, err := s.bases()
	if err != nil {
		tb.Fatal(err)
	}
	for _, base := range bases {
		l, err := s.open(base)
		if err != nil {
			tb.Fatal(err)
		}
		for {
			one, err := l.letter()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
			ids = append(ids, string(one.UUID))
		}
		l.close()
	}
	return ids
}

// Whoever dies while he writes leaves a part of a line, of any length: what was there
// before is there, and the next letter behind it.
func TestALineThatWasNotWrittenWholeIsCutOff(t *testing.T) {
	t.Parallel()
	s := shelf{t.TempDir()}
	w := writer(t, s)
	if err := w.add(lettersOf(t, 0, 3)); err != nil {
		t.Fatal(err)
	}
	whole := w.size
	if err := w.add(lettersOf(t, 3, 2)); err != nil {
		t.Fatal(err)
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(s.letters(firstLetter))
	if err != nil {
		t.Fatal(err)
	}
	for cut := whole; cut <= int64(len(text)); cut += 7 { // two lines, neither as long as a multiple of that
		lines := bytes.Count(text[:cut], []byte("\n"))
		torn := shelf{t.TempDir()}
		if err := os.WriteFile(torn.letters(firstLetter), text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if n := len(torn.on(t)); n != lines {
			t.Fatalf("cut at %d of %d a reader sees %d letters, want %d", cut, len(text), n, lines)
		}
		again := writer(t, torn)
		if err := errors.Join(again.add(lettersOf(t, 9, 1)), again.close()); err != nil {
			t.Fatal(err)
		}
		want := []string{"m-0000", "m-0001", "m-0002", "m-0003", "m-0004"}[:lines]
		if got := torn.on(t); !slices.Equal(got, append(want, "m-0009")) {
			t.Fatalf("cut at %d of %d there are %q", cut, len(text), got)
		}
	}
}

// A disk that is full: nothing is said to be there that is not, and what comes when it
// has room again stands behind what was there.
func TestAWriterOnAFullDiskWritesNothing(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("a system without /dev/full: " + err.Error())
	}
	defer full.Close()
	s := shelf{t.TempDir()}
	w := writer(t, s)
	if err := w.add(lettersOf(t, 0, 2)); err != nil {
		t.Fatal(err)
	}
	disk := w.f
	w.f = full
	if err := w.add(lettersOf(t, 2, 2)); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Fatalf("on a full disk it says %v", err)
	}
	w.f = disk
	if _, err := disk.WriteString(`{"n":3,"at`); err != nil { // as much as there was room for
		t.Fatal(err)
	}
	if err := w.add(lettersOf(t, 4, 1)); err != nil {
		t.Fatal(err)
	}
	if got := s.on(t); !slices.Equal(got, []string{"m-0000", "m-0001", "m-0004"}) {
		t.Errorf("there are %q", got)
	}
}

// What comes a second time because its ack was lost is known, also by the next writer;
// what was settled meanwhile, or says nothing of its death, is another letter.
func TestWhatComesAgainUnackedIsKnown(t *testing.T) {
	t.Parallel()
	s := shelf{t.TempDir()}
	foreign := func() *letter { return letterOf(message.NewMessage("twin", []byte("b")), time.Now()) }
	first := writer(t, s)
	first.full = 1 // each batch has a file of its own
	for _, batch := range [][]*letter{lettersOf(t, 0, 3), lettersOf(t, 0, 3), {foreign()}, {foreign()}} {
		if err := first.add(batch); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.on(t); !slices.Equal(got, []string{"m-0000", "m-0001", "m-0002", "twin", "twin"}) {
		t.Fatalf("there are %q", got)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	s = shelf{t.TempDir()}
	for range 3 {
		w := writer(t, s)
		if err := errors.Join(w.add(slices.Concat(lettersOf(t, 0, 2), lettersOf(t, 0, 2))), w.close()); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.on(t); !slices.Equal(got, []string{"m-0000", "m-0001"}) {
		t.Errorf("three writers have written %q", got)
	}
	if err := s.settle(firstLetter, spans{{1, 1}}); err != nil {
		t.Fatal(err)
	}
	w := writer(t, s)
	if err := w.add(lettersOf(t, 0, 2)); err != nil {
		t.Fatal(err)
	}
	if got := s.on(t); !slices.Equal(got, []string{"m-0000", "m-0001", "m-0000"}) {
		t.Errorf("after the first was settled there are %q", got)
	}
}

// Spans are what a set would be.
func TestSpansAreASet(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		var s spans
		set := make(map[int64]bool)
		for range r.IntN(30) {
			from := 1 + r.Int64N(40)
			through := from + r.Int64N(6)
			s = s.with(span{from, through})
			for n := from; n <= through; n++ {
				set[n] = true
			}
		}
		for n := range int64(50) {
			if s.has(n) != set[n] {
				t.Fatalf("seed %d: %v has %d: %v", seed, s, n, s.has(n))
			}
		}
		if s.count() != int64(len(set)) {
			t.Fatalf("seed %d: %v counts %d, want %d", seed, s, s.count(), len(set))
		}
		for i := 1; i < len(s); i++ {
			if s[i].From <= s[i-1].Through+1 {
				t.Fatalf("seed %d: %v touch", seed, s)
			}
		}
	}
}

// What is settled is written behind what was, also where a writer has died in the midst.
func TestWhatIsSettledIsReadWithoutATornLine(t *testing.T) {
	t.Parallel()
	s := shelf{t.TempDir()}
	for n, torn := range map[int64]string{1: "", 20: "[3", 30: "[3,4]", 40: "[", 50: "\x00\x00\x00"} {
		if err := s.settle(n, spans{{n, n + 2}}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(s.outs(n))
		if err == nil {
			err = os.WriteFile(s.outs(n), append(text, torn...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.settled(n); err != nil || !slices.Equal(got, spans{{n, n + 2}}) {
			t.Errorf("with %q behind it there is %v: %v", torn, got, err)
		}
		if err := s.settle(n, spans{{n + 4, n + 4}}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.settled(n); err != nil || !slices.Equal(got, spans{{n, n + 2}, {n + 4, n + 4}}) {
			t.Errorf("after %q there is %v: %v", torn, got, err)
		}
	}
}
