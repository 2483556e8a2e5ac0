package settle

import "github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"

// tracker records which records of a partition are settled, and how far the group may commit: up to the lowest
// unsettled one.
type tracker struct {
	Ring[tracked]

	mark int64 // offset to commit: all below it are settled
	read int64 // the offset behind the last record that was added; 0 for none
}

// tracked is one record.
type tracked struct {
	offset  int64
	begun   bool
	settled bool
}

// add registers a record that was read and returns its number.
func (t *tracker) add(offset int64) uint64 {
	if t.Len() == 0 && offset < t.mark { // the log's start moved between sarama's question and ours
		t.mark = offset
	}
	t.read = offset + 1
	return t.Add(tracked{offset: offset})
}

// settle marks a record as settled.
func (t *tracker) settle(number uint64) {
	t.At(number).settled = true
	for t.lowest < t.next && t.At(t.lowest).settled {
		t.mark = t.At(t.lowest).offset + 1
		t.lowest++
	}
}

// above returns the settled records above the lowest unsettled one.
func (t *tracker) above() (all commitmeta.Runs) {
	for n := t.lowest; n < t.next; n++ {
		r := t.At(n)
		if !r.settled {
			continue
		}
		if last := len(all) - 1; last >= 0 && n > t.lowest && t.At(n-1).settled {
			all[last].To = r.offset + 1 // there is no record between them
		} else {
			all = append(all, commitmeta.Run{From: r.offset, To: r.offset + 1})
		}
	}
	return all
}

// begunSize bounds by how much the settled records above the mark grow when all records that have begun are settled. It
// is a size as that of commitmeta.Runs.
func (t *tracker) begunSize() (size int) {
	for n := t.lowest; n < t.next; n++ {
		if r := t.At(n); r.begun && !r.settled {
			size += commitmeta.SizeOfOne(r.offset, t.mark)
		}
	}
	return size
}
