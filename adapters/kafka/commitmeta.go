package kafka

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// commitMeta describes the state of a partition's owner. It is the metadata of the owner's offset commits, so it
// usually costs no write of its own, and the next owner finds it beside the offset. All records below the offset are
// settled, whatever the metadata says.
//
//	redeliver/1 by=k3jv8q2a topic=7Zl2hRiCRuqDSlzQ1RMKxw state=careful end=5200 base=1000 window=0-99,105 suspects=3-5,7x2 alone=7 settled=rAwUCAQ
//
// The numbers in window, suspects, alone and settled are relative to base, which is the committed offset. 7x2 is a
// suspect that ran alone twice when its process died. settled has the settled records above the offset, see
// writeSettled. Readers skip unknown fields, so that fields can be added. Text that begins differently or cannot be
// read is not ours and is ignored.
type commitMeta struct {
	owner    string // who wrote it; unique for each Client
	topic    string // topic id, if known
	state    ownerState
	end      int64          // only offsets below end are restricted to window and alone; 0 for none
	window   map[int64]bool // offsets that may have begun
	suspects map[int64]int  // records that may have killed a process, and how often each ran alone when its process died
	alone    int64          // the suspect that ran alone when this was written; -1 for none
	settled  []offsetRun    // above the offset, ascending
	base     int64          // the offset to which the numbers are relative; 0 if there are none
}

type ownerState string

const (
	stateRun     ownerState = "run"     // every record that is not a suspect may have begun
	stateCareful ownerState = "careful" // only records in window may have begun
	stateLeft    ownerState = "left"    // the owner ended in order, and none of its messages runs
)

const (
	metaVersion = "redeliver/1"
	// A broker accepts 4096 bytes (offset.metadata.max.bytes). Suspects that do not fit are left out, and found again.
	// A window that is too long is not begun.
	maxWindowText   = 2000 // bytes
	maxSuspectsText = 1500
	maxMetaOffsets  = 4096 // text with more offsets is ignored
	maxMetaText     = 4000 // bytes
	maxCrashCount   = 1000
)

// known reports whether the metadata is redeliver's. The zero value is not.
func (n commitMeta) known() bool { return n.state != "" }

// text formats the metadata. It leaves out offsets below mark, which are settled.
func (n commitMeta) text(mark int64) string {
	text, _ := n.textWithSettled(mark, nil)
	return text
}

// textWithSettled is text with the settled records above mark. whole is false if not all of them fit.
func (n commitMeta) textWithSettled(mark int64, settled []offsetRun) (text string, whole bool) {
	var b strings.Builder
	b.WriteString(metaVersion + " by=" + n.owner)
	if n.topic != "" {
		b.WriteString(" topic=" + n.topic)
	}
	b.WriteString(" state=" + string(n.state))
	if n.end > mark {
		b.WriteString(" end=" + strconv.FormatInt(n.end, 10))
	}
	window := offsetsFrom(maps.Keys(n.window), mark)
	suspects := offsetsFrom(maps.Keys(n.suspects), mark)
	if len(window)+len(suspects)+len(settled) == 0 && n.alone < mark {
		return b.String(), true
	}
	b.WriteString(" base=" + strconv.FormatInt(mark, 10))
	writeRuns(&b, " window=", window, mark, func(int64) int { return 0 }, maxWindowText)
	writeRuns(&b, " suspects=", suspects, mark, func(o int64) int { return n.suspects[o] }, maxSuspectsText)
	if n.alone >= mark {
		b.WriteString(" alone=" + strconv.FormatInt(n.alone-mark, 10))
	}
	set, whole := writeSettled(settled, mark, maxMetaText-b.Len()-len(" settled="))
	if set != "" {
		b.WriteString(" settled=" + set)
	}
	return b.String(), whole
}

// fits reports whether the whole window fits into the text.
func (n commitMeta) fits(mark int64) bool {
	var b strings.Builder
	writeRuns(&b, "", offsetsFrom(maps.Keys(n.window), mark), mark, func(int64) int { return 0 }, maxWindowText)
	return b.Len() < maxWindowText
}

// offsetsFrom returns the offsets from mark on, ascending.
func offsetsFrom(offsets func(func(int64) bool), mark int64) []int64 {
	return slices.DeleteFunc(slices.Sorted(offsets), func(o int64) bool { return o < mark })
}

// writeRuns writes ascending offsets as runs with the same count, up to about maxBytes.
func writeRuns(b *strings.Builder, name string, offsets []int64, base int64, count func(int64) int, maxBytes int) {
	begin, sep := b.Len(), name
	for i := 0; i < len(offsets) && b.Len()-begin < maxBytes; {
		first, n := offsets[i], count(offsets[i])
		last := first
		for i++; i < len(offsets) && offsets[i] == last+1 && count(offsets[i]) == n; i++ {
			last = offsets[i]
		}
		b.WriteString(sep + strconv.FormatInt(first-base, 10))
		if last > first {
			b.WriteString("-" + strconv.FormatInt(last-base, 10))
		}
		if n > 0 {
			b.WriteString("x" + strconv.Itoa(n))
		}
		sep = ","
	}
}

// parseMeta parses a commit's metadata. It returns the zero value if that is not redeliver's or cannot be read.
func parseMeta(text string) commitMeta {
	fields := strings.Split(text, " ")
	if len(text) > 4*maxMetaOffsets || fields[0] != metaVersion {
		return commitMeta{}
	}
	values := make(map[string]string, len(fields))
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if _, twice := values[name]; !ok || twice {
			return commitMeta{}
		}
		values[name] = value
	}
	n := commitMeta{owner: values["by"], topic: values["topic"], state: ownerState(values["state"]), alone: -1, window: make(map[int64]bool), suspects: make(map[int64]int)}
	switch n.state {
	case stateRun, stateCareful, stateLeft:
	default:
		return commitMeta{}
	}
	base, ok := parseOffset(values["base"], 0)
	n.base = base
	if end, present := values["end"]; ok && present {
		n.end, ok = parseOffset(end, 0)
	}
	if alone, present := values["alone"]; ok && present {
		n.alone, ok = parseOffset(alone, base)
	}
	ok = ok && readRuns(values["window"], base, func(o int64, crashes int) bool {
		n.window[o] = true
		return crashes == 0 && len(n.window) <= maxMetaOffsets
	}) && readRuns(values["suspects"], base, func(o int64, crashes int) bool {
		n.suspects[o] = crashes
		return len(n.suspects) <= maxMetaOffsets
	})
	if !ok {
		return commitMeta{}
	}
	if n.settled, ok = readSettled(values["settled"], base); !ok {
		return commitMeta{}
	}
	return n
}

// parseOffset parses an offset relative to base. An empty text is base itself.
func parseOffset(text string, base int64) (int64, bool) {
	if text == "" {
		return base, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return base + n, err == nil && n >= 0 && n <= math.MaxInt64-base-1
}

// readRuns parses the text of writeRuns.
func readRuns(text string, base int64, add func(offset int64, crashes int) bool) bool {
	if text == "" {
		return true
	}
	for item := range strings.SplitSeq(text, ",") {
		offsets, times, counted := strings.Cut(item, "x")
		crashes := 0
		if counted {
			n, err := strconv.Atoi(times)
			if err != nil || n < 0 || n > maxCrashCount {
				return false
			}
			crashes = n
		}
		low, high, isRun := strings.Cut(offsets, "-")
		if !isRun {
			high = low
		}
		first, ok := parseOffset(low, base)
		last, ok2 := parseOffset(high, base)
		if !ok || !ok2 || low == "" || high == "" || last < first || last-first >= maxMetaOffsets {
			return false
		}
		for o := first; o <= last; o++ {
			if !add(o, crashes) {
				return false
			}
		}
	}
	return true
}

// inherit returns the state of a new owner that finds n beside the offset mark, in a log that ends at logEnd. stretch
// is the estimate of how far the last owner was ahead of what it had settled. All conclusions from the last owner's
// death are drawn here.
func (n commitMeta) inherit(owner string, mark, logEnd, stretch int64) commitMeta {
	next := commitMeta{owner: owner, state: stateCareful, alone: -1, end: n.end, window: make(map[int64]bool), suspects: make(map[int64]int)}
	for o, crashes := range n.suspects {
		if o >= mark {
			next.suspects[o] = crashes
		}
	}
	// If this process wrote n, it lost that session and survived.
	ownerDied := n.known() && n.state != stateLeft && n.owner != owner
	switch {
	case !ownerDied:
	case n.alone >= mark:
		next.suspects[n.alone] = min(next.suspects[n.alone]+1, maxCrashCount)
	case n.alone >= 0: // the suspect settled; nothing has begun since
	case n.state == stateCareful:
		for o := range n.window {
			if _, known := next.suspects[o]; !known && o >= mark {
				next.suspects[o] = 0
			}
		}
	default:
		settled := mark
		if last := len(n.settled) - 1; last >= 0 {
			settled = max(mark, n.settled[last].to)
		}
		next.end = min(logEnd, settled+stretch)
	}
	if next.end <= mark {
		next.end = 0
	}
	return next
}
