package commitmeta

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
)

func offsets(of ...int64) map[int64]bool {
	set := make(map[int64]bool)
	for _, o := range of {
		set[o] = true
	}
	return set
}

// textOf formats metadata without settled records.
func textOf(n Meta, mark int64) string {
	text, _ := n.Text(mark, nil)
	return text
}

func TestCommitMetaRoundTrips(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]struct {
		mark int64
		meta Meta
	}{
		"redeliver/1 by=k3jv8q2a state=run":                              {1000, Meta{Owner: "k3jv8q2a", State: Running, Alone: -1}},
		"redeliver/1 by=k3jv8q2a topic=7Zl2hRiCRuqDSlzQ1RMKxw state=run": {1000, Meta{Owner: "k3jv8q2a", Topic: "7Zl2hRiCRuqDSlzQ1RMKxw", State: Running, Alone: -1}},
		"redeliver/1 by=k3jv8q2a state=left":                             {1000, Meta{Owner: "k3jv8q2a", State: Left, End: 900, Alone: 999, Window: offsets(998), Suspects: map[int64]int{997: 1}}},
		"redeliver/1 by=k3jv8q2a state=careful end=5200 base=1000 window=0-3,105 suspects=3-5,7x2,8x1 alone=7": {1000, Meta{
			Owner: "k3jv8q2a", State: Careful, End: 5200, Alone: 1007, Window: offsets(1000, 1001, 1002, 1003, 1105, 999),
			Suspects: map[int64]int{1003: 0, 1004: 0, 1005: 0, 1007: 2, 1008: 1, 3: 4},
		}},
	} {
		if got := textOf(c.meta, c.mark); got != text {
			t.Errorf("wrote %q, want %q", got, text)
		}
		got, want := Parse(text), c.meta
		// Offsets below the mark are not written.
		want.Window, want.Suspects = maps.Clone(want.Window), maps.Clone(want.Suspects)
		maps.DeleteFunc(want.Window, func(o int64, _ bool) bool { return o < c.mark })
		maps.DeleteFunc(want.Suspects, func(o int64, _ int) bool { return o < c.mark })
		if want.End <= c.mark {
			want.End = 0
		}
		if want.Alone < c.mark {
			want.Alone = -1
		}
		if got.Owner != want.Owner || got.Topic != want.Topic || got.State != want.State || got.End != want.End || got.Alone != want.Alone ||
			!maps.Equal(got.Window, want.Window) || !maps.Equal(got.Suspects, want.Suspects) {
			t.Errorf("read %+v from %q, want %+v", got, text, want)
		}
	}
}

// Metadata of other programs, and truncated or broken metadata, is ignored. Fields of later versions are skipped.
func TestForeignCommitMetadataIsIgnored(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "redeliver", "redeliver/1", "redeliver/2 by=a state=run", "redeliver/1 by=a state=gone", "redeliver/1 by=a state=run state=left",
		"redeliver/1 by=a state=careful base=-1", "redeliver/1 by=a state=careful base=x", "redeliver/1 by=a state=careful window=5-3",
		"redeliver/1 by=a state=careful window=0-99999999", "redeliver/1 by=a state=careful window=1x2", "redeliver/1 by=a state=careful window=1,",
		"redeliver/1 by=a state=careful suspects=1x", "redeliver/1 by=a state=careful suspects=1x100000", "redeliver/1 by=a state=careful suspects=1-2-3",
		"redeliver/1 by=a state=careful base=9223372036854775807 alone=1", "redeliver/1 by=a state=careful alone=-3", "redeliver/1 by=a state=run settled=4-7", "redeliver/1 by=a state=careful end=",
		"redeliver/1 by=a state=run " + strings.Repeat("x=1", 10_000), "redeliver/1  by=a state=run", "2024-11-21T22:00:00Z",
	} {
		if n := Parse(text); n.Known() && text != "redeliver/1 by=a state=careful end=" {
			t.Errorf("%q is parsed as %+v", text, n)
		}
	}
	if n := Parse("redeliver/1 by=a state=run later=4,7 more=yes"); n.State != Running {
		t.Errorf("unknown fields make it unreadable: %+v", n)
	}
}

// A broker accepts 4096 bytes. It refuses longer metadata together with its offset.
func TestCommitMetaIsNeverTooLong(t *testing.T) {
	t.Parallel()
	n := Meta{Owner: NewOwner(), State: Careful, End: math.MaxInt64 - 1, Alone: math.MaxInt64 / 2, Window: make(map[int64]bool), Suspects: make(map[int64]int)}
	for i := range int64(5000) {
		n.Window[i*1_000_003_000_001] = true
		n.Suspects[i*1_000_003_000_001+5] = int(i%maxCrashCount) + 1
	}
	if got := len(textOf(n, 0)); got > 4096 {
		t.Errorf("%d bytes", got)
	}
	if got := Parse(textOf(n, 0)); !got.Known() || len(got.Window) == 0 || len(got.Suspects) == 0 {
		t.Errorf("truncated metadata cannot be read: %+v", got)
	}
}

func TestInheritCommitMeta(t *testing.T) {
	t.Parallel()
	const mark, end, stretch = 100, 1000, 500
	none := map[int64]int{}
	far, _ := writeSettled(Runs{{340, 350}}, mark, maxSettledText)
	for name, c := range map[string]struct {
		found    string
		end      int64
		suspects map[int64]int
	}{
		"nothing":                           {"", 0, none},
		"somebody else's":                   {"consumed by the batch job", 0, none},
		"left":                              {"redeliver/1 by=x state=left", 0, none},
		"left in the middle of a stretch":   {"redeliver/1 by=x state=left end=300 base=90 suspects=5,15x1", 300, map[int64]int{105: 1}},
		"died at work":                      {"redeliver/1 by=x state=run", 600, none},
		"died in a window":                  {"redeliver/1 by=x state=careful end=300 base=90 window=5-12", 300, map[int64]int{100: 0, 101: 0, 102: 0}},
		"died behind the stretch":           {"redeliver/1 by=x state=careful end=80 base=70 window=5-12", 0, none},
		"died with one alone":               {"redeliver/1 by=x state=careful end=300 base=90 window=5-12 suspects=10,11x1 alone=11", 300, map[int64]int{100: 0, 101: 2}},
		"died when it was settled":          {"redeliver/1 by=x state=careful end=300 base=90 window=5-12 suspects=9,10,11x1 alone=9", 300, map[int64]int{100: 0, 101: 1}},
		"died at work, suspects not due":    {"redeliver/1 by=x state=run base=90 suspects=50x2", 600, map[int64]int{140: 2}},
		"this process lost the session":     {"redeliver/1 by=me state=run", 0, none},
		"and a window":                      {"redeliver/1 by=me state=careful end=300 base=90 window=5-12", 300, none},
		"and one alone, which is uncharged": {"redeliver/1 by=me state=careful end=300 base=90 suspects=11x1 alone=11", 300, map[int64]int{101: 1}},
		"died at work far above the mark":   {"redeliver/1 by=x state=run base=100 settled=" + far, 850, none},
	} {
		got := Parse(c.found).Inherit("me", mark, end, stretch)
		if got.End != c.end || !maps.Equal(got.Suspects, c.suspects) || len(got.Window) > 0 || got.Alone >= 0 || got.Owner != "me" {
			t.Errorf("%s: %+v, want end %d and suspects %v", name, got, c.end, c.suspects)
		}
	}
	if got := Parse("redeliver/1 by=x state=run").Inherit("me", mark, 250, stretch); got.End != 250 {
		t.Errorf("careful up to %d, and the log ends at 250", got.End)
	}
}

func FuzzCommitMeta(f *testing.F) {
	for _, text := range []string{
		"redeliver/1 by=k3jv8q2a state=run", "redeliver/1 by= state=left",
		"redeliver/1 by=k3jv8q2a state=careful end=5200 base=1000 window=0-3,105 suspects=3-5,7x2,8x1 alone=7", "redeliver/1 state=run x=1", "offset of the batch job",
		"redeliver/1 by=k3jv8q2a last=2PpKpYgJ state=run base=1000 settled=rAwUCAQ", "redeliver/1 by=k3jv8q2a head=IRVAKQAMxtDb-ayRZpHqAqGS7AIA state=run error=card%20declined",
	} {
		f.Add(text, int64(100))
	}
	f.Fuzz(func(t *testing.T, text string, mark int64) {
		n := Parse(text)
		n.base = 0 // as the text has it
		w := n.TextIn(MaxText, 0, n.Settled)
		again := w.Text
		if !n.Known() || len(again) > MaxText/2 || w.Unlisted >= 0 {
			return // the text may have been cut
		}
		if last := len(n.Settled) - 1; last >= 0 && n.Settled[last].To > 1<<60 {
			return // too large from offset 0
		}
		if len(n.Window)+len(n.Suspects)+len(n.Settled) == 0 && n.Alone < 0 {
			n.Last = Record{} // nothing is listed
		}
		got := Parse(again)
		for i, text := range n.Head.texts() { // it may have been left out
			*text.value = *got.Head.texts()[i].value
		}
		if !reflect.DeepEqual(got, n) {
			t.Errorf("%q was read as %+v, written as %q, and read as %+v", text, n, again, got)
		}
		next := n.Inherit("me", max(0, mark), math.MaxInt64-1, 50_000)
		if !Parse(textOf(next, max(0, mark))).Known() {
			t.Errorf("the metadata after %q cannot be read: %q", text, textOf(next, max(0, mark)))
		}
	})
}
