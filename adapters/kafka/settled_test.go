package kafka

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTrackerMarksOnlyTheSettledPrefix compares the tracker with a simple model. After any order of reads and
// settlements, the mark is one above the last record before the lowest unsettled one, with or without gaps. The settled
// records above it are read as they were written.
func TestTrackerMarksOnlyTheSettledPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type row struct {
			offset  int64
			number  uint64
			settled bool
		}
		var tr tracker
		var rows []row
		offset := int64(0)
		for range rapid.IntRange(1, 700).Draw(t, "steps") {
			var open []int
			for i, r := range rows {
				if !r.settled {
					open = append(open, i)
				}
			}
			if len(open) == 0 || rapid.Bool().Draw(t, "read") {
				offset += rapid.Int64Range(1, 3).Draw(t, "gap") // compacted logs and transaction markers leave gaps
				rows = append(rows, row{offset: offset, number: tr.add(offset)})
				continue
			}
			i := rapid.SampledFrom(open).Draw(t, "settle")
			before := tr.mark
			rows[i].settled = true
			further := tr.settle(rows[i].number)
			want, span, above := int64(0), 0, 0
			for j, r := range rows {
				switch {
				case !r.settled && span == 0:
					span = len(rows) - j
				case span == 0:
					want = r.offset + 1
				case r.settled:
					above++
				}
			}
			if n := int(tr.next - tr.first); tr.mark != want || n != span {
				t.Fatalf("mark %d, span %d, want %d and %d", tr.mark, n, want, span)
			}
			base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
			moved := make([]offsetRun, 0, above)
			for _, o := range tr.above() {
				moved = append(moved, offsetRun{o.from + base, o.to + base})
			}
			text, whole := writeSettled(moved, base+want, maxSettledText)
			read, ok := readSettled(text, base+want)
			if !whole || !ok {
				t.Fatalf("%v is written as %q, read %v, %v", moved, text, read, ok)
			}
			for _, r := range rows {
				in := slices.ContainsFunc(read, func(o offsetRun) bool { return o.from <= r.offset+base && r.offset+base < o.to })
				if r.offset >= want && in != r.settled {
					t.Fatalf("offset %d is settled: %v; read %v from %q", r.offset, r.settled, read, text)
				}
			}
			if further != (want != before) {
				t.Fatalf("settle says %v, the mark went from %d to %d", further, before, want)
			}
		}
	})
}

// If a set does not fit, the highest offsets are left out.
func TestASettlementSetIsBounded(t *testing.T) {
	t.Parallel()
	var everyThird, far []offsetRun
	for i := range int64(20_000) {
		everyThird = append(everyThird, offsetRun{3*i + 1, 3*i + 2})
		far = append(far, offsetRun{1_000_000*i + 1, 1_000_000*i + 2})
	}
	for name, c := range map[string]struct {
		all      []offsetRun
		minCount int // the number of offsets that must fit
		whole    bool
	}{
		"many runs, as bits":  {everyThird[:sureSpan/3], sureSpan / 3, true},
		"too many runs":       {everyThird, 1000, false},
		"one long run":        {[]offsetRun{{10, 10_000_000}}, 1, true},
		"far from each other": {far, 400, false},
		"none":                {nil, 0, true},
	} {
		text, whole := writeSettled(c.all, 0, maxSettledText)
		read, ok := readSettled(text, 0)
		if whole != c.whole || len(text) > maxSettledText || !ok || len(read) < c.minCount || !slices.Equal(read, c.all[:len(read)]) {
			t.Errorf("%s: %d of %d are read from %d bytes, whole %v", name, len(read), len(c.all), len(text), whole)
		}
	}
	for _, text := range []string{"x", "r!", "r_w", "bAQ=", "r____________________________"} {
		if read, ok := readSettled(text, 0); ok {
			t.Errorf("read %v from %q", read, text)
		}
	}
	if text, whole := writeSettled(everyThird, 0, 10); len(text) > 10 || whole {
		t.Errorf("wrote %q, whole %v, into 10 bytes", text, whole)
	}
}
