package kafka

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
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
			if n := tr.span(); tr.mark != want || n != span {
				t.Fatalf("mark %d, span %d, want %d and %d", tr.mark, n, want, span)
			}
			base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
			moved := make(commitmeta.Runs, 0, above)
			for _, o := range tr.above() {
				moved = append(moved, commitmeta.Run{From: o.From + base, To: o.To + base})
			}
			text, whole := commitmeta.Ended("me", "").Text(base+want, moved)
			read := commitmeta.Parse(text)
			if !whole || !read.Known() {
				t.Fatalf("%v is written as %q, read %+v", moved, text, read)
			}
			for _, r := range rows {
				if in := read.Settled.Contains(r.offset + base); r.offset >= want && in != r.settled {
					t.Fatalf("offset %d is settled: %v; read %v from %q", r.offset, r.settled, read.Settled, text)
				}
			}
			if further != (want != before) {
				t.Fatalf("settle says %v, the mark went from %d to %d", further, before, want)
			}
		}
	})
}
