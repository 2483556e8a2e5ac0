package redeliver_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
)

func TestAPauseMarkIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, c := range []struct{ mark, want redeliver.PauseMark }{
		{redeliver.PauseMark{By: "ann@host", At: at, Reason: "the bank is closed"}, redeliver.PauseMark{By: "ann@host", At: at, Reason: "the bank is closed"}},
		{redeliver.PauseMark{By: "ann b@host", At: at, Reason: "two\nlines\x1b[31m"}, redeliver.PauseMark{By: "ann_b@host", At: at, Reason: "two lines [31m"}},
		{redeliver.PauseMark{By: "ann@host", At: at, Reason: "the bank is closed", NewOnly: true}, redeliver.PauseMark{By: "ann@host", At: at, Reason: "the bank is closed", NewOnly: true}},
		{redeliver.PauseMark{At: at}, redeliver.PauseMark{By: "unknown", At: at}},
		{redeliver.PauseMark{By: strings.Repeat("ä", 100), At: at, Reason: strings.Repeat("ö", 200)}, redeliver.PauseMark{By: strings.Repeat("ä", 32), At: at, Reason: strings.Repeat("ö", 80)}},
	} {
		if got := redeliver.ParsePauseMark(c.mark.String()); got != c.want {
			t.Errorf("%+v is read as %+v", c.mark, got)
		}
	}
	if got, want := redeliver.ParsePauseMark("made by hand"), (redeliver.PauseMark{Reason: "made by hand"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func FuzzParsePauseMark(f *testing.F) {
	f.Add("2026-03-04T05:06:07Z ann@host the bank is closed")
	f.Add("2026-03-04T05:06:07Z ann@host")
	f.Add("2026-03-04T05:06:07Z ann@host new-only: the bank is closed")
	f.Add("new-only: ")
	f.Add("\x00\xff ")
	f.Fuzz(func(t *testing.T, text string) {
		m := redeliver.ParsePauseMark(text)
		again := m.String()
		if len(again) > 256 || !utf8.ValidString(again) || strings.ContainsFunc(again, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is written as %q", text, again)
		}
		if m.At.IsZero() {
			return // made by hand
		}
		if back := redeliver.ParsePauseMark(again); !back.At.Equal(m.At.Truncate(time.Second)) || back.Reason != m.Reason || back.NewOnly != m.NewOnly {
			t.Errorf("%+v is read as %+v", m, back)
		}
	})
}
