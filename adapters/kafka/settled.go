package kafka

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
)

// Records settle out of order: one that waits, or whose handler takes long, settles after many that were read later. A
// commit has only one offset. So the metadata of each commit lists the settled records above the offset, see
// commitMeta. The next owner of the partition skips them. After a kill, a rebalance or a deploy only records that
// settled after the last commit run again.

const (
	// maxSpan bounds the records between the lowest unsettled one and the highest that has begun.
	maxSpan = 65_536
	// maxSettledText bounds the text of a set in bytes. A broker accepts metadata of 4,096 bytes.
	maxSettledText = 3000
	// Every set within sureSpan fits into maxSettledText as bits, if the offsets have no gaps.
	sureSpan = 16_384
)

// offsetRun is a run of offsets, from included and to excluded.
type offsetRun struct{ from, to int64 }

// containsOffset reports whether ascending runs contain an offset.
func containsOffset(all []offsetRun, offset int64) bool {
	i, _ := slices.BinarySearchFunc(all, offset, func(o offsetRun, offset int64) int { return cmp.Compare(o.to, offset+1) })
	return i < len(all) && all[i].from <= offset
}

// tracker records which records of a partition are settled, and how far the group may commit: up to the lowest
// unsettled one. It numbers records in the order in which they are read, because offsets may have gaps.
type tracker struct {
	ring  []tracked // its length is a power of two
	first uint64    // number of the lowest unsettled record
	next  uint64    // number of the record that is read next
	mark  int64     // offset to commit: all below it are settled
}

// tracked is one record.
type tracked struct {
	offset   int64
	bytes    int32 // in memory, until it begins
	settled  bool
	inWindow bool       // it waits in crashGate.waiting
	waiting  *waitState // nil for a first delivery without a key queue
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

// settle marks a record as settled. It reports whether mark has moved.
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

// record returns a record that is not below the lowest unsettled one.
func (t *tracker) record(number uint64) *tracked { return &t.ring[number&uint64(len(t.ring)-1)] }

// above returns the settled records above the lowest unsettled one.
func (t *tracker) above() (all []offsetRun) {
	for n := t.first; n < t.next; n++ {
		r := t.record(n)
		if !r.settled {
			continue
		}
		if last := len(all) - 1; last >= 0 && n > t.first && t.record(n-1).settled {
			all[last].to = r.offset + 1 // there is no record between them
		} else {
			all = append(all, offsetRun{r.offset, r.offset + 1})
		}
	}
	return all
}

// writeSettled formats ascending runs above base in at most size bytes, as runs or as bits, whichever is shorter. whole
// is false if it left out the runs with the highest offsets.
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

// readSettled parses the text of writeSettled.
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
