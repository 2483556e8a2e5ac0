package loss

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// deadLetter is one message in the DLQ, as an independent reader found it.
type deadLetter struct {
	id      string
	key     []byte
	value   []byte
	headers []header          // without redeliver's
	place   string            // the origin position in the copy's headers
	meta    map[string]string // redeliver's headers without their prefix
}

// evidence is all data that a run leaves.
type evidence struct {
	items   []*item
	journal []line
	dead    []deadLetter

	suspects bool // see plan
}

// checkResult is what check found.
type checkResult struct {
	lost        []string // ids without an end, with their last line
	early       []string // runs before their time
	wrong       []string // any other violation
	notRepeated []string // kills whose message nobody ran again, so the process was not in that state
	kills       map[state]int
	alive       int // those of rerun whose previous consumer was alive: the cause was a rebalance or an outage
	rerun       int // runs beyond those that the rules ask for
	deadAgain   int // additional copies in the DLQ
	runs        int
	late        []time.Duration // lateness of every retry, ascending
	duplicated  int             // messages with any of these
	suspects    int             // first attempts that were set aside before
}

// ok reports whether the promises were kept.
func (v *checkResult) ok() bool { return len(v.lost)+len(v.early)+len(v.wrong) == 0 }

// check compares the evidence with the rules.
func check(ev evidence) *checkResult {
	v := &checkResult{kills: make(map[state]int)}
	histories := make(map[string]*history, len(ev.items))
	for _, it := range ev.items {
		histories[it.id] = &history{item: it, suspects: ev.suspects}
	}
	// Order the lines of different processes by time: they share a host and its clock.
	lines := slices.Clone(ev.journal)
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	last := make(map[int]time.Time)
	for _, l := range lines {
		last[l.process] = l.at
		if l.kind == joined || l.kind == lostConnection || l.kind == refused || l.kind == changed {
			continue
		}
		if l.kind == ignored {
			v.wrong = append(v.wrong, fmt.Sprintf("process %d ignored headers of %s: %s", l.process, l.id, l.text))
			continue
		}
		m := histories[l.id]
		if m == nil {
			v.wrong = append(v.wrong, fmt.Sprintf("a run of %q, which nobody wrote: %+v", l.id, l))
			continue
		}
		m.lines = append(m.lines, l)
	}
	for _, l := range ev.dead {
		m := histories[l.id]
		if m == nil {
			v.wrong = append(v.wrong, fmt.Sprintf("a dead letter %q, which nobody wrote", l.id))
			continue
		}
		m.dead = append(m.dead, l)
	}
	for _, it := range ev.items {
		histories[it.id].checkInto(v, last)
	}
	slices.Sort(v.late)
	return v
}

// history is what happened to one message.
type history struct {
	item  *item
	lines []line
	dead  []deadLetter

	suspects bool
}

// checkInto adds the findings about a message to v. last has the time of each process's last line.
func (m *history) checkInto(v *checkResult, last map[int]time.Time) {
	it := m.item
	wrong := func(format string, args ...any) {
		v.wrong = append(v.wrong, it.id+" ("+string(it.rule)+"): "+fmt.Sprintf(format, args...))
	}
	runs := make(map[int]int)              // by attempt
	runner := make(map[int]int)            // by attempt: the last process that ran it
	firstFailed := make(map[int]time.Time) // by attempt
	commits := 0
	for i, l := range m.lines {
		switch l.kind {
		case joined, lostConnection, ignored, refused, changed: // not recorded with a message
		case entered:
			if before, ok := runner[l.attempt]; ok && last[before].After(l.at) {
				v.alive++
			}
			runner[l.attempt] = l.process
			runs[l.attempt]++
			v.runs++
			m.timing(v, l, firstFailed)
			if want := it.redeliverID(); l.text != want {
				wrong("its id is %q, want %q", l.text, want)
			}
		case succeeded:
			commits++
		case failed:
			if _, ok := firstFailed[l.attempt]; !ok {
				firstFailed[l.attempt] = l.at
			}
		case killed:
			st := state(strings.Fields(l.text)[0])
			v.kills[st]++
			if !slices.ContainsFunc(m.lines[i+1:], func(n line) bool { return n.kind == entered && n.attempt >= l.attempt && n.process != l.process }) {
				v.notRepeated = append(v.notRepeated, fmt.Sprintf("%s attempt %d, process %d, %s", l.id, l.attempt, l.process, l.text))
			}
		}
	}

	again := 0
	for attempt, n := range runs {
		if attempt > it.attempts() {
			wrong("attempt %d ran %d times; the rule gives %d", attempt, n, it.attempts())
		}
		again += n - 1
	}
	v.rerun += again
	v.deadAgain += max(0, len(m.dead)-1)
	if again > 0 || len(m.dead) > 1 {
		v.duplicated++
	}

	switch {
	case it.rule == always && commits > 0:
		wrong("committed")
	case it.rule != always && len(m.dead) > 0:
		wrong("is in the DLQ: %v", m.dead[0].meta)
	}
	if commits == 0 && len(m.dead) == 0 {
		v.lost = append(v.lost, m.describe())
	} else {
		for n := 1; n <= it.attempts(); n++ {
			if runs[n] == 0 {
				wrong("attempt %d never ran", n)
			}
		}
	}
	for _, l := range m.dead {
		if problem := it.compare(l); problem != "" {
			wrong("in the DLQ: %s", problem)
		}
	}
}

// timing compares a run with its due time, as the handler saw it, and with the previous failure.
func (m *history) timing(v *checkResult, l line, firstFailed map[int]time.Time) {
	early := func(format string, args ...any) {
		v.early = append(v.early, fmt.Sprintf("%s attempt %d in process %d: %s", l.id, l.attempt, l.process, fmt.Sprintf(format, args...)))
	}
	if l.attempt == 1 {
		switch {
		case l.due.IsZero():
		case !m.suspects:
			early("a first attempt with a due time")
		case l.at.Before(l.due):
			early("%s before it is due", l.due.Sub(l.at))
		default:
			v.suspects++
		}
		return
	}
	if l.due.IsZero() {
		early("a retry without a due time")
	} else if l.at.Before(l.due) {
		early("%s before it is due", l.due.Sub(l.at))
	}
	before, ok := firstFailed[l.attempt-1]
	wait := m.item.wait(l.attempt - 1)
	switch {
	case !ok:
		early("the attempt before has not failed")
	case l.at.Sub(before) < wait:
		early("%s after the failure, want %s", l.at.Sub(before), wait)
	}
	if !l.due.IsZero() {
		v.late = append(v.late, l.at.Sub(l.due))
	}
}

// describe describes the last line about a lost message.
func (m *history) describe() string {
	s := fmt.Sprintf("%s (%s, %s):", m.item.id, m.item.rule, m.item.place)
	for _, l := range m.lines {
		s += fmt.Sprintf(" %s%d@%s#%d", l.kind, l.attempt, l.at.Format("05.000"), l.process)
		if l.kind == killed {
			s += "[" + l.text + "]"
		}
	}
	return s
}

// redeliverID returns the id that redeliver must give the message.
func (it *item) redeliverID() string {
	if it.uuid {
		return it.id
	}
	return cmp.Or(it.recordID, it.place)
}

// compare returns what is wrong with a dead letter, or "".
func (it *item) compare(l deadLetter) string {
	want := map[string]string{
		"reason": "exhausted", "attempt": strconv.Itoa(it.attempts()), "error": errRule.Error(), "id": it.redeliverID(),
	}
	for name, value := range want {
		if l.meta[name] != value {
			return fmt.Sprintf("redeliver-%s is %q, want %q", name, l.meta[name], value)
		}
	}
	switch {
	case l.place != it.place:
		return fmt.Sprintf("its origin is %s, want %s", l.place, it.place)
	case !same(l.key, it.key):
		return fmt.Sprintf("its key is %q, want %q", l.key, it.key)
	case !same(l.value, it.value):
		return fmt.Sprintf("its value is %q, want %q", l.value, it.value)
	case !slices.EqualFunc(l.headers, it.headers, func(a, b header) bool { return a.key == b.key && same(a.value, b.value) }):
		return fmt.Sprintf("its headers are %q, want %q", l.headers, it.headers)
	}
	first, err1 := time.Parse(time.RFC3339Nano, l.meta["first-failed"])
	last, err2 := time.Parse(time.RFC3339Nano, l.meta["last-failed"])
	if err := cmp.Or(err1, err2); err != nil {
		return err.Error()
	}
	if waits := it.wait(1) + it.wait(2) + it.wait(3); last.Sub(first) < waits-time.Millisecond {
		return fmt.Sprintf("first and last failure are %s apart, want %s at least", last.Sub(first), waits)
	}
	return ""
}

// quantile returns a quantile of an ascending list.
func quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(100 * time.Microsecond)
}

// few shortens a list of findings to fit on a screen.
func few(list []string) string {
	const most = 15
	text := "\n\t" + strings.Join(list[:min(most, len(list))], "\n\t")
	if len(list) > most {
		text += fmt.Sprintf("\n\tand %d more", len(list)-most)
	}
	return text
}
