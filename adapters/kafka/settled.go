package kafka

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// Settlement is out of order: a record that waits, or whose handler takes long, is settled after many that were read behind
// it. A commit is one offset. So each commit carries in its metadata which records above its offset are settled, see note.
// The next owner of the partition passes over them: after a kill, a rebalance or a deploy only those run again that were
// settled since the last commit.

const (
	// maxSpan bounds the records between the lowest unsettled one and the highest that has begun.
	maxSpan = 65_536
	// maxSettledText bounds the text of a set in bytes. A broker takes metadata of 4,096 bytes.
	maxSettledText = 3000
	// sureSpan is a span of which every set fits into maxSettledText, as bits, where the offsets have no gaps.
	sureSpan = 16_384
)

// offsetRun is the offsets from from, below to.
type offsetRun struct{ from, to int64 }

// isSettled reports whether ascending runs have an offset.
func containsOffset(all []offsetRun, offset int64) bool {
	i, _ := slices.BinarySearchFunc(all, offset, func(o offsetRun, offset int64) int { return cmp.Compare(o.to, offset+1) })
	return i < len(all) && all[i].from <= offset
}

// tracker knows which of the records read from a partition are settled, and how
// far the group may commit: up to the lowest that is not. Offsets need not be
// contiguous; records are numbered in the order in which they are read.
type tracker struct {
	ring  []tracked // a power of two long
	first uint64    // number of the lowest unsettled record
	next  uint64    // number of the record that is read next
	mark  int64     // what may be committed: one above the last settled offset
}

// tracked is one record.
type tracked struct {
	offset   int64
	bytes    int32 // in memory, until it begins
	settled  bool
	inWindow bool     // see caution
	waiting  *waiting // nil for a first delivery that needs no place in a line
}

// add registers a record that was read and returns its number.
func (t *tracker) add(offset int64) uint64 {
	if n := t.next - t.first; n == uint64(len(t.ring)) {
		t.grow()
	}
	t.ring[t.next&uint64(len(t.ring)-1)] = tracked{offset: offset}
	t.next++
	return t.next - 1
}

func (t *tracker) grow() {
	bigger := make([]tracked, max(256, 2*len(t.ring)))
	for n := t.first; n < t.next; n++ {
		bigger[n&uint64(len(bigger)-1)] = t.ring[n&uint64(len(t.ring)-1)]
	}
	t.ring = bigger
}

// settle notes that a record is settled. It reports whether more may be committed than before; mark says how much.
func (t *tracker) settle(number uint64) (moved bool) {
	r := t.record(number)
	r.settled, r.waiting = true, nil
	for t.first < t.next && t.record(t.first).settled {
		t.mark = t.record(t.first).offset + 1
		t.first++
		moved = true
	}
	return moved
}

// of is a record that is not below the lowest unsettled one.
func (t *tracker) record(number uint64) *tracked { return &t.ring[number&uint64(len(t.ring)-1)] }

// above are the settled records above the lowest unsettled one.
func (t *tracker) above() (all []offsetRun) {
	for n := t.first; n < t.next; n++ {
		r := t.record(n)
		if !r.settled {
			continue
		}
		if last := len(all) - 1; last >= 0 && n > t.first && t.record(n-1).settled {
			all[last].to = r.offset + 1 // what is between them is no record
		} else {
			all = append(all, offsetRun{r.offset, r.offset + 1})
		}
	}
	return all
}

// writeSettled is the text of spans, ascending and above base, in at most size bytes: as runs, or as bits where that is
// shorter. whole is false where those with the highest offsets are left out.
func writeSettled(all []offsetRun, base int64, size int) (text string, whole bool) {
	if len(all) == 0 {
		return "", true
	}
	size = min(size, maxSettledText)
	room := base64.RawURLEncoding.DecodedLen(max(0, size-1))
	var runs []byte
	whole = true
	at := base
	for _, s := range all {
		next := binary.AppendUvarint(runs, uint64(s.from-at))
		next = binary.AppendUvarint(next, uint64(s.to-s.from))
		if len(next) > room {
			whole = false
			break
		}
		runs, at = next, s.to
	}
	if n := (all[len(all)-1].to - base + 7) / 8; n <= int64(room) && (!whole || n < int64(len(runs))) {
		bits := make([]byte, n)
		for _, s := range all {
			for o := s.from - base; o < s.to-base; o++ {
				bits[o/8] |= 1 << (o % 8)
			}
		}
		return "b" + base64.RawURLEncoding.EncodeToString(bits), true
	}
	if len(runs) == 0 {
		return "", false
	}
	return "r" + base64.RawURLEncoding.EncodeToString(runs), whole
}

// readSettled reads what writeSettled has written.
func readSettled(text string, base int64) (all []offsetRun, ok bool) {
	if text == "" {
		return nil, true
	}
	data, err := base64.RawURLEncoding.DecodeString(text[1:])
	if err != nil || len(text) > 4*maxSettledText {
		return nil, false
	}
	switch text[0] {
	case 'r':
		for at := base; len(data) > 0; {
			skip, n := binary.Uvarint(data)
			if n <= 0 {
				return nil, false
			}
			length, m := binary.Uvarint(data[n:])
			if m <= 0 || skip > 1<<48 || length > 1<<48 || at > 1<<61 {
				return nil, false
			}
			at += int64(skip)
			all = append(all, offsetRun{at, at + int64(length)})
			at += int64(length)
			data = data[n+m:]
		}
		return all, true
	case 'b':
		for o := range int64(len(data)) * 8 {
			if data[o/8]&(1<<(o%8)) == 0 {
				continue
			}
			if last := len(all) - 1; last >= 0 && all[last].to == base+o {
				all[last].to++
			} else {
				all = append(all, offsetRun{base + o, base + o + 1})
			}
		}
		return all, true
	default:
		return nil, false
	}
}
