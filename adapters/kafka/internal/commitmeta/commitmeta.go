// Package commitmeta formats and parses the metadata of a partition's offset commits, which says which records the
// owner of the partition has begun and settled. The metadata needs no write of its own, and the next owner finds it
// beside the offset.
//
//	redeliver/1 by=k3jv8q2a topic=7Zl2hRiCRuqDSlzQ1RMKxw head=IRVAKegHAtDb-ayRZ9EPoh8A last=2PpKpYgJ state=careful end=5200 base=1000 window=0-99,105 suspects=3-5,7x2 alone=7 settled=rAwUCAQ error=card%20declined
//
// All records below the committed offset are settled, whatever the metadata says. The metadata states three facts about
// those above it.
//
// Some are settled, too: records settle out of order, because one that waits, or whose handler takes long, settles
// after many that were read later. The next owner skips the records in settled. After a kill, a rebalance or a deploy
// only records that settled after the last commit run again.
//
// One of the others may have killed the owner. [Meta.Inherit] concludes from state, end, window, suspects and alone
// which records the next owner must suspect.
//
// One may have failed, and wait in its place while all others wait behind it. head has its attempts and times, error and
// errortype say why it failed, and firsterror says why it failed first, if that differs. The next owner continues from
// there, see [Head].
//
// A listed offset is believed only for the log that it was written for. The topic's id shows that the topic was created
// again, and base shows that a tool copied the text to another offset. last identifies the last record that the owner
// had read, see [Record]. If the log no longer has that record, it has lost its end, and may have other records at the
// listed offsets. head names its own record, in the same way.
//
// A broker bounds the text. Where it has no room for all, head comes first, then settled, alone, end, window, suspects,
// and the texts of the head. An escaped text is listed whole or not at all.
//
// The numbers in head, last, window, suspects, alone and settled are relative to the committed offset, which is base. 7x2 is a
// suspect that ran alone twice when its process died. Readers skip unknown fields, so that fields can be added. Text
// that begins differently or cannot be read is not ours and is ignored.
package commitmeta

import (
	"crypto/rand"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Meta is the metadata of one commit.
type Meta struct {
	Owner    string // who wrote it, see NewOwner
	Topic    string // topic id, if known
	State    State
	End      int64          // only offsets below End are restricted to Window and Alone; 0 for none
	Window   map[int64]bool // offsets that may have begun
	Suspects map[int64]int  // records that may have killed a process, and how often each ran alone when its process died
	Alone    int64          // the suspect that ran alone when this was written; -1 for none
	Last     Record         // the last record that the owner had read; the zero Record if unknown
	Head     Head           // of the message that keeps its place; the zero Head for none
	Settled  Runs           // above the committed offset; only Parse sets it

	base int64 // the offset to which the numbers are relative; 0 if there are none
}

// State says which records the owner may have begun.
type State string

// The states.
const (
	Running State = "run"     // every record that is not a suspect may have begun
	Careful State = "careful" // only records in Window may have begun
	Left    State = "left"    // the owner ended in order, and none of its messages runs
)

const (
	metaVersion = "redeliver/1"
	// MaxText bounds the text in bytes. A broker accepts 4,096 bytes (offset.metadata.max.bytes). It has room for all
	// fields but suspects, whatever they have. Suspects that do not fit are left out, and found again.
	MaxText        = 4000
	maxWindowText  = 700  // bytes; a window that is longer is not begun
	maxMetaOffsets = 4096 // text with more offsets is ignored
	maxCrashCount  = 1000
)

// NewOwner returns a name under which one Client writes its metadata.
func NewOwner() string { return strings.ToLower(rand.Text()[:8]) }

// Ended returns the metadata of an owner that has ended in order and knows no suspects.
func Ended(owner, topic string) Meta { return Meta{Owner: owner, Topic: topic, State: Left, Alone: -1} }

// WithoutOffsets returns the metadata of the same owner, which may have begun every record, unless it has ended in order
// and knew no suspects.
func (m Meta) WithoutOffsets() Meta {
	if m.State == Left && m.End == 0 && len(m.Suspects) == 0 {
		return Ended(m.Owner, m.Topic)
	}
	return Meta{Owner: m.Owner, State: Running, Alone: -1, Window: make(map[int64]bool), Suspects: make(map[int64]int)}
}

// Known reports whether the metadata is redeliver's. The zero value is not.
func (m Meta) Known() bool { return m.State != "" }

// IsOf reports whether the offsets in the metadata are those of a commit of offset. Mirroring tools copy metadata to
// offsets at which there are other records.
func (m Meta) IsOf(offset int64) bool { return m.base == offset || m.base == 0 && len(m.Settled) == 0 }

// Below returns the metadata without the offsets from end on, where the log ends.
func (m Meta) Below(end int64) Meta {
	m.Window, m.Suspects, m.End = maps.Clone(m.Window), maps.Clone(m.Suspects), min(m.End, end)
	maps.DeleteFunc(m.Window, func(o int64, _ bool) bool { return o >= end })
	maps.DeleteFunc(m.Suspects, func(o int64, _ int) bool { return o >= end })
	if m.Alone >= end {
		m.Alone = -1
	}
	return m
}

// Written is the text of a commit.
type Written struct {
	Text     string
	Unlisted int64 // the lowest settled offset that the text does not list; -1 for none
	Complete bool  // it has all fields, except some suspects and the texts of the head
	HasHead  bool  // it has the head, perhaps without its texts
}

// Text is [Meta.TextIn] with MaxText. whole is false if not all of settled fits.
func (m Meta) Text(mark int64, settled Runs) (text string, whole bool) {
	w := m.TextIn(MaxText, mark, settled)
	return w.Text, w.Unlisted < 0
}

// TextIn formats the metadata for a commit of mark, with the settled records above it, in at most size bytes. It leaves
// out offsets below mark, which are settled.
func (m Meta) TextIn(size int, mark int64, settled Runs) Written {
	head := metaVersion + " by=" + m.Owner
	if m.Topic != "" {
		head += " topic=" + m.Topic
	}
	w := Written{Unlisted: -1, Complete: true}
	if len(settled) > 0 {
		w.Unlisted = max(mark, settled[0].From)
	}
	state := " state=" + string(m.State)
	room := size - len(head) - len(state)
	if room < 0 {
		w.Complete = false
		return w
	}
	fit := func(field string) string {
		if len(field) > room {
			w.Complete = false
			return ""
		}
		room -= len(field)
		return field
	}
	noted := fit(m.Head.text(mark))
	w.HasHead = noted != ""
	head += noted
	var last, end, base, window, suspected, alone, set, texts string
	windowed, suspects := offsetsFrom(maps.Keys(m.Window), mark), offsetsFrom(maps.Keys(m.Suspects), mark)
	if len(windowed)+len(suspects)+len(settled) > 0 || m.Alone >= mark {
		last, base = m.Last.text(mark), " base="+strconv.FormatInt(mark, 10)
		if fit(last+base) == "" {
			w.Text = head + state
			return w
		}
	}
	if len(settled) > 0 {
		const name = " settled="
		text, n := writeSettled(settled, mark, room-len(name))
		if n > 0 {
			set = fit(name + text)
		}
		if w.Unlisted = -1; n < len(settled) {
			w.Unlisted = settled[n].From
		}
	}
	if m.Alone >= mark {
		alone = fit(" alone=" + strconv.FormatInt(m.Alone-mark, 10))
	}
	if m.End > mark {
		end = fit(" end=" + strconv.FormatInt(m.End, 10))
	}
	window, _ = runsText(" window=", windowed, mark, noCount, maxWindowText)
	window = fit(window)
	suspected, _ = runsText(" suspects=", suspects, mark, func(o int64) int { return m.Suspects[o] }, room)
	room -= len(suspected)
	for _, t := range m.Head.texts() {
		if field := t.name + escape(*t.value); w.HasHead && *t.value != "" && len(field) <= room {
			texts, room = texts+field, room-len(field)
		}
	}
	w.Text = head + last + state + end + base + window + suspected + alone + set + texts
	return w
}

// WindowFits reports whether the whole window fits into the text.
func (m Meta) WindowFits(mark int64) bool {
	_, whole := runsText(" window=", offsetsFrom(maps.Keys(m.Window), mark), mark, noCount, maxWindowText)
	return whole
}

// offsetsFrom returns the offsets from mark on, ascending.
func offsetsFrom(offsets func(func(int64) bool), mark int64) []int64 {
	return slices.DeleteFunc(slices.Sorted(offsets), func(o int64) bool { return o < mark })
}

func noCount(int64) int { return 0 }

// runsText formats ascending offsets as runs with the same count, in at most size bytes. whole is false if it left out
// the highest offsets.
func runsText(name string, offsets []int64, base int64, count func(int64) int, size int) (text string, whole bool) {
	var b strings.Builder
	sep := name
	for i := 0; i < len(offsets); {
		first, n := offsets[i], count(offsets[i])
		last := first
		for i++; i < len(offsets) && offsets[i] == last+1 && count(offsets[i]) == n; i++ {
			last = offsets[i]
		}
		run := sep + strconv.FormatInt(first-base, 10)
		if last > first {
			run += "-" + strconv.FormatInt(last-base, 10)
		}
		if n > 0 {
			run += "x" + strconv.Itoa(n)
		}
		if b.Len()+len(run) > size {
			return b.String(), false
		}
		b.WriteString(run)
		sep = ","
	}
	return b.String(), true
}

// At returns the metadata, which Parse has returned, as that of a commit of an offset.
func (m Meta) At(offset int64) Meta {
	if m.Head.Known() {
		m.Head.Record.Offset += offset
	}
	return m
}

// Parse parses a commit's metadata. It returns the zero value if that is not redeliver's or cannot be read.
func Parse(text string) Meta {
	fields := strings.Split(text, " ")
	if len(text) > 4*maxMetaOffsets || fields[0] != metaVersion {
		return Meta{}
	}
	values := make(map[string]string, len(fields))
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if _, twice := values[name]; !ok || twice {
			return Meta{}
		}
		values[name] = value
	}
	m := Meta{Owner: values["by"], Topic: values["topic"], State: State(values["state"]), Alone: -1, Window: make(map[int64]bool), Suspects: make(map[int64]int)}
	switch m.State {
	case Running, Careful, Left:
	default:
		return Meta{}
	}
	base, ok := parseOffset(values["base"], 0)
	m.base = base
	if end, present := values["end"]; ok && present {
		m.End, ok = parseOffset(end, 0)
	}
	if alone, present := values["alone"]; ok && present {
		m.Alone, ok = parseOffset(alone, base)
	}
	ok = ok && readRuns(values["window"], base, func(o int64, crashes int) bool {
		m.Window[o] = true
		return crashes == 0 && len(m.Window) <= maxMetaOffsets
	}) && readRuns(values["suspects"], base, func(o int64, crashes int) bool {
		m.Suspects[o] = crashes
		return len(m.Suspects) <= maxMetaOffsets
	})
	if !ok {
		return Meta{}
	}
	if m.Settled, ok = readSettled(values["settled"], base); !ok {
		return Meta{}
	}
	m.Last = parseRecord(values["last"], base)
	if m.Head = parseHead(values["head"]); m.Head.Known() {
		for _, t := range m.Head.texts() {
			*t.value = unescape(values[strings.Trim(t.name, " =")])
		}
	}
	return m
}

// parseOffset parses an offset relative to base. An empty text is base itself.
func parseOffset(text string, base int64) (int64, bool) {
	if text == "" {
		return base, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return base + n, err == nil && n >= 0 && n <= math.MaxInt64-base-1
}

// readRuns parses the text of runsText.
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

// Inherit returns the state of a new owner that finds m beside the offset mark, in a log that ends at logEnd. stretch
// is the estimate of how far the last owner was ahead of what it had settled. All conclusions from the last owner's
// death are drawn here.
func (m Meta) Inherit(owner string, mark, logEnd, stretch int64) Meta {
	next := Meta{Owner: owner, State: Careful, Alone: -1, End: m.End, Window: make(map[int64]bool), Suspects: make(map[int64]int)}
	for o, crashes := range m.Suspects {
		if o >= mark {
			next.Suspects[o] = crashes
		}
	}
	// If this process wrote m, it lost that session and survived.
	ownerDied := m.Known() && m.State != Left && m.Owner != owner
	switch {
	case !ownerDied:
	case m.Alone >= mark:
		next.Suspects[m.Alone] = min(next.Suspects[m.Alone]+1, maxCrashCount)
	case m.Alone >= 0: // the suspect settled; nothing has begun since
	case m.State == Careful:
		for o := range m.Window {
			if _, known := next.Suspects[o]; !known && o >= mark {
				next.Suspects[o] = 0
			}
		}
	default:
		settled := mark
		if last := len(m.Settled) - 1; last >= 0 {
			settled = max(mark, m.Settled[last].To)
		}
		next.End = min(logEnd, settled+stretch)
	}
	if next.End <= mark {
		next.End = 0
	}
	return next
}
