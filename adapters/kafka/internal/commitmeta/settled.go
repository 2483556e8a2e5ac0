package commitmeta

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"
)

const (
	// maxSettledText bounds the text of a set in bytes. A broker accepts metadata of 4,096 bytes.
	maxSettledText = 3000
	// MaxSureSpan is a number of records. If the offsets have no gaps, every set within it fits into maxSettledText as bits.
	MaxSureSpan = 16_384
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

// writeSettled formats runs above base in at most size bytes, as runs or as bits, whichever is shorter. whole
// is false if it left out the runs with the highest offsets.
func writeSettled(all Runs, base int64, size int) (text string, whole bool) {
	if len(all) == 0 {
		return "", true
	}
	size = min(size, maxSettledText)
	room := base64.RawURLEncoding.DecodedLen(max(0, size-1))
	var runs []byte
	whole = true
	at := base
	for _, s := range all {
		next := binary.AppendUvarint(runs, uint64(s.From-at))
		next = binary.AppendUvarint(next, uint64(s.To-s.From))
		if len(next) > room {
			whole = false
			break
		}
		runs, at = next, s.To
	}
	if n := (all[len(all)-1].To - base + 7) / 8; n <= int64(room) && (!whole || n < int64(len(runs))) {
		bits := make([]byte, n)
		for _, s := range all {
			for o := s.From - base; o < s.To-base; o++ {
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
			if m <= 0 || skip > 1<<48 || length > 1<<48 || at > 1<<61 {
				return nil, false
			}
			at += int64(skip)
			all = append(all, Run{at, at + int64(length)})
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
