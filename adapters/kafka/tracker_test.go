package kafka

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTrackerMarksOnlyTheSettledPrefix compares the tracker with the obvious
// model: after any order of reads and settlements the mark stands one above the
// last record before the lowest unsettled one, gaps between offsets or not.
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
			moved := tr.settle(rows[i].number)
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
			if n := int(tr.next - tr.first); tr.mark != want || n != span || tr.above() != above {
				t.Fatalf("mark %d, span %d, %d settled above, want %d, %d and %d", tr.mark, n, tr.above(), want, span, above)
			}
			if moved != (want != before) {
				t.Fatalf("moved says %v, the mark went from %d to %d", moved, before, want)
			}
		}
	})
}
