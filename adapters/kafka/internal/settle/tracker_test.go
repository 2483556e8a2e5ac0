package settle

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
			rows[i].settled = true
			tr.settle(rows[i].number)
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
			if n := tr.Len(); tr.mark != want || n != span {
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
		}
	})
}

// If retention deletes records while a session begins, records below the mark may come. They used to end in a panic of
// the committer: the settlement set had an offset below its base.
func TestTrackerTakesRecordsBelowItsMark(t *testing.T) {
	tr := tracker{mark: 150}
	first := tr.add(100)
	tr.settle(tr.add(120))
	if tr.mark != 100 || len(tr.above()) != 1 {
		t.Errorf("mark %d, settled above it %v, want 100 and the record 120", tr.mark, tr.above())
	}
	text, whole := commitmeta.Ended("me", "").Text(tr.mark, tr.above())
	if !whole {
		t.Errorf("the metadata %q does not have all settled records", text)
	}
	if tr.settle(first); tr.mark != 121 {
		t.Errorf("mark %d when both are settled, want 121", tr.mark)
	}
}
