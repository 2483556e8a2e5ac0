package commitmeta

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
)

const (
	// maxSettledText bounds the text of a set in bytes. A broker accepts metadata of 4,096 bytes.
	maxSettledText = 3000
	// MaxSureSpan is a number of offsets. Every set within it fits into maxSettledText as bits.
	MaxSureSpan = 16_384
	// MaxRunBytes is the size of the runs that surely fit into maxSettledText, see Runs.Size.
	MaxRunBytes = (maxSettledText - 1) * 3 / 4
)

// Run is a run of offsets, from From to before To.
type Run struct{ From, To int64 }

// Runs are runs of offsets, ascending.
type Runs []Run

// Contains reports whether a run contains an offset.
func (all Runs) Contains(offset int64) bool {
	i, _ := slices.BinarySearchFunc(all, offset, func(r Run, offset int64) int { return cmp.Compare(r.To, offset+1) })
	return i < len(all) && all[i].From <= offset
}

// From returns the runs from an offset on.
func (all Runs) From(offset int64) Runs {
	i, _ := slices.BinarySearchFunc(all, offset, func(r Run, offset int64) int { return cmp.Compare(r.To, offset+1) })
	if i == len(all) || all[i].From >= offset {
		return all[i:]
	}
	return append(Runs{{offset, all[i].To}}, all[i+1:]...)
}

// Append returns the runs followed by more, which are above them.
func (all Runs) Append(more Runs) Runs {
	if last := len(all) - 1; last >= 0 && len(more) > 0 && all[last].To == more[0].From {
		all[last].To, more = more[0].To, more[1:]
	}
	return append(all, more...)
}

// Count returns the number of offsets.
func (all Runs) Count() (n int64) {
	for _, r := range all {
		n += r.To - r.From
	}
	return n
}

// Size returns the bytes of runs above base, before they become text.
func (all Runs) Size(base int64) (n int) {
	for at := base; len(all) > 0; all = all[1:] {
		n += sizeOf(all[0].From-at) + sizeOf(all[0].To-all[0].From)
		at = all[0].To
	}
	return n
}

// SizeOfOne bounds by how much the size of runs above base grows when one offset joins them: it is a run of its own at
// most, and shortens the gap before the next.
func SizeOfOne(offset, base int64) int { return sizeOf(offset-base) + 1 }

// sizeOf returns the bytes of n as a varint.
func sizeOf(n int64) int { return (bits.Len64(uint64(n)|1) + 6) / 7 }

// writeSettled formats runs above base in at most size bytes, as runs or as bits, whichever is shorter. n is how many
// runs it has written; it leaves out those with the highest offsets.
func writeSettled(all Runs, base int64, size int) (text string, n int) {
	if len(all) == 0 {
		return "", 0
	}
	size = min(size, maxSettledText)
	room := base64.RawURLEncoding.DecodedLen(max(0, size-1))
	var runs []byte
	at := base
	for _, s := range all {
		next := binary.AppendUvarint(runs, uint64(s.From-at))
		next = binary.AppendUvarint(next, uint64(s.To-s.From))
		if len(next) > room {
			break
		}
		runs, at = next, s.To
		n++
	}
	if length := (all[len(all)-1].To - base + 7) / 8; length <= int64(room) && (n < len(all) || length < int64(len(runs))) {
		set := make([]byte, length)
		for _, s := range all {
			for o := s.From - base; o < s.To-base; o++ {
				set[o/8] |= 1 << (o % 8)
			}
		}
		return "b" + base64.RawURLEncoding.EncodeToString(set), len(all)
	}
	return "r" + base64.RawURLEncoding.EncodeToString(runs), n
}

// readSettled parses the text of writeSettled.
func readSettled(text string, base int64) (all Runs, ok bool) {
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
			if m <= 0 || skip > 1<<61 || length > 1<<61 || at > 1<<61 {
				return nil, false
			}
			at += int64(skip)
			switch last := len(all) - 1; {
			case length == 0:
			case last >= 0 && all[last].To == at:
				all[last].To += int64(length)
			default:
				all = append(all, Run{at, at + int64(length)})
			}
			at += int64(length)
			data = data[n+m:]
		}
		return all, true
	case 'b':
		for o := range int64(len(data)) * 8 {
			if data[o/8]&(1<<(o%8)) == 0 {
				continue
			}
			if last := len(all) - 1; last >= 0 && all[last].To == base+o {
				all[last].To++
			} else {
				all = append(all, Run{base + o, base + o + 1})
			}
		}
		return all, true
	default:
		return nil, false
	}
}
