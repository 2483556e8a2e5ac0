package commitmeta

import (
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// headAt returns the head of a record at an offset, after 12 attempts.
func headAt(offset int64, text string) Head {
	failed := time.UnixMilli(1_764_352_000_123)
	return HeadOf(Identify(offset, failed, []byte("k"), 10), &redeliver.State{
		Attempts: 12, FirstFailed: failed.Add(-5 * time.Minute), LastFailed: failed, Due: failed.Add(30 * time.Second), FirstError: "first: " + text, Error: text, ErrorType: "*errors.errorString",
	})
}

// A head comes back as it was, wherever it is above the committed offset, and its texts are one value each.
func TestAHeadRoundTrips(t *testing.T) {
	t.Parallel()
	const mark = 1000
	for _, text := range []string{
		"card declined", "", "100%", "a=b error=x", " two  spaces ", "line\nbreak\ttab\x00", "Zahlung für Ärzte abgelehnt 支払い", "caf\xe9", "\u00a0\u2028\ufffd", strings.Repeat("é", 300),
	} {
		for _, offset := range []int64{mark, mark + 3, 1 << 40} {
			for _, settled := range []Runs{nil, {{mark + 5, mark + 9}}} {
				want := headAt(offset, text)
				m := Meta{Owner: "k3jv8q2a", State: Running, Alone: -1, Head: want}
				w := m.TextIn(MaxText, mark, settled)
				if got := Parse(w.Text).At(mark); !w.HasHead || got.Head != want || len(got.Settled) != len(settled) {
					t.Errorf("%q was read as %+v, want %+v", w.Text, got.Head, want)
				}
			}
		}
	}
	below := Meta{Owner: "k3jv8q2a", State: Running, Alone: -1, Head: headAt(mark-1, "x")}
	if w := below.TextIn(MaxText, mark, nil); w.HasHead || strings.Contains(w.Text, "error") {
		t.Errorf("a settled record is the head in %q", w.Text)
	}
}

// A head is what the next owner reads, so its restored state is that of the message.
func TestAHeadRestoresItsState(t *testing.T) {
	t.Parallel()
	failed := time.UnixMilli(1_764_352_000_123).UTC()
	for name, want := range map[string]redeliver.State{
		"failed":              {Attempts: 2, FirstFailed: failed.Add(-time.Second), LastFailed: failed, Due: failed.Add(time.Second), FirstError: "no answer", Error: "declined", ErrorType: "T"},
		"failed once":         {Attempts: 1, FirstFailed: failed, LastFailed: failed, Due: failed},
		"only postponed":      {LastFailed: failed, PostponedSince: failed.Add(-time.Hour), Due: failed.Add(time.Minute)},
		"of a clock before 0": {Attempts: 1, FirstFailed: time.UnixMilli(-5).UTC(), LastFailed: time.UnixMilli(-5).UTC(), Due: time.UnixMilli(5).UTC()},
	} {
		h := HeadOf(Record{5, 7}, &want)
		m := Parse(Meta{Owner: "me", State: Left, Alone: -1, Head: h}.TextIn(MaxText, 5, nil).Text).At(5)
		var got redeliver.State
		m.Head.Restore(&got)
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	immediate := HeadOf(Record{5, 7}, &redeliver.State{Attempts: 1, LastFailed: failed})
	if immediate.Due != failed.UnixMilli() {
		t.Errorf("an immediate retry is due at %d", immediate.Due)
	}
}

// Attempts fit where a broker accepts 100 bytes. Texts are left out as a whole where there is no room, and count as they
// are escaped.
func TestTheAttemptsOfAHeadComeFirst(t *testing.T) {
	t.Parallel()
	m := Meta{Owner: "k3jv8q2a", Topic: "7Zl2hRiCRuqDSlzQ1RMKxw", State: Running, Alone: -1, Last: Record{1_000_000_000, 5}, Suspects: map[int64]int{1_000_000_000: 2}}
	m.Head = headAt(1_000_000_000, strings.Repeat("é\n", 100))
	settled := Runs{{1_000_000_002, 1_000_000_003}}
	for size := 100; size <= MaxText; size++ {
		w := m.TextIn(size, 1_000_000_000, settled)
		got := Parse(w.Text).At(1_000_000_000)
		if len(w.Text) > size || !w.HasHead || got.Head.Attempts != 12 || got.Head.Record != m.Head.Record || got.Head.Due != m.Head.Due {
			t.Fatalf("%d of %d bytes: %q", len(w.Text), size, w.Text)
		}
		if got.Head.Error != "" && got.Head.Error != m.Head.Error || got.Head.FirstError != "" && got.Head.FirstError != m.Head.FirstError {
			t.Fatalf("with %d bytes a part of an error is left: %q, %q", size, got.Head.FirstError, got.Head.Error)
		}
		if size > 1400 && got.Head != m.Head {
			t.Fatalf("with %d bytes texts are missing: %+v", size, got.Head)
		}
	}
	if w := m.TextIn(64, 1_000_000_000, settled); w.HasHead || w.Complete || len(w.Text) > 64 {
		t.Errorf("64 bytes: %q", w.Text)
	}
	m.Head = headAt(1_000_000_000, strings.Repeat("\n", 512)) // 3 bytes each
	m.Head.FirstError, m.Head.ErrorType = m.Head.Error, m.Head.Error
	var everyThird Runs
	for i := range int64(20_000) {
		everyThird = append(everyThird, Run{1_000_000_000 + 3*i + 1, 1_000_000_000 + 3*i + 2})
	}
	if w := m.TextIn(MaxText, 1_000_000_000, everyThird); len(w.Text) > MaxText || !w.HasHead || !w.Complete {
		t.Errorf("%d bytes: %q", len(w.Text), w.Text)
	}
}

func TestABrokenHeadIsNoHead(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"head=", "head=AAAA", "head=!", "head=AAAAAAAAAAAAAAAA", "head=IRVAKegH", "head=IRVAK" + strings.Repeat("_", 60), "error=x errortype=y"} {
		m := Parse("redeliver/1 by=a state=run " + field)
		if !m.Known() || m.Head != (Head{}) {
			t.Errorf("%s is read as %+v", field, m)
		}
	}
}
