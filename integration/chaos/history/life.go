package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// life is a message as it is gone through, line by line.
type life struct {
	*checker
	*message
	load   Load
	name   string
	began  map[int][]Line // by attempt
	failed map[int][]Line // by attempt
	commit []Line
	buried []Line
}

func (l *life) begin(line Line) {
	v := l.verdict
	v.Runs++
	l.same(line)
	if most := l.load.attempts(l.Rule); line.Attempt > most {
		l.violatef(TooMany, l.ID, "attempt %d, and a message that fails %s has %d: %s", line.Attempt, l.Rule, most, l.signs())
	}
	if before := l.began[line.Attempt]; len(before) > 0 {
		v.Again++
		last := before[len(before)-1]
		// Each failure of the attempt before was written on: where that ran twice, this one does, whenever that was.
		if len(before) >= len(l.failed[line.Attempt-1]) && !l.explained(last.At, line.At) && !l.doubtful(line.Attempt-1) {
			l.violatef(Again, l.ID, "attempt %d ran again after %s, and there was no fault: %s", line.Attempt, time.Duration(line.At-last.At), l.signs())
		}
	}
	l.began[line.Attempt] = append(l.began[line.Attempt], line)
	l.timing(line)
}

// doubtful reports whether an attempt failed in a fault, or little before one, or its write did, on a machine that stood
// still: it may have been made twice then, and both copies may lie behind others for minutes before they run.
func (l *life) doubtful(attempt int) bool {
	const takes = 5 * time.Second // to write, at most
	return l.tried[try{l.name, attempt}] || slices.ContainsFunc(l.failed[attempt], func(f Line) bool { return l.faulty(f.At, f.At+int64(takes)) })
}

// timing holds a run against the failure before it. The due time is a moment on the clock of the process that failed;
// who runs the message goes by its own clock, which may have been stepped since. A due time that a clock wrote which was
// ahead, or that who reads it is behind of, need not be met where it is later than any can be: it is not believed then, and
// the wait itself is kept, by the reader's clock, which may be set right before it is over. Nor is it believed where a
// third one, whose clock was ahead, took the message from its level too soon.
func (l *life) timing(line Line) {
	if line.Attempt == 1 {
		// The due time of a message that waits behind another of its key says nothing, nor does a suspect's.
		if line.Due != 0 && l.load.Order != PerKey && !l.load.Suspects {
			l.violatef(Early, l.ID, "a first attempt with a due time: %s", l.signs())
		}
		return
	}
	before := l.failed[line.Attempt-1]
	if len(before) == 0 {
		l.violatef(Skipped, l.ID, "attempt %d, and attempt %d has not failed: %s", line.Attempt, line.Attempt-1, l.signs())
		return
	}
	if line.Due == 0 {
		l.violatef(Early, l.ID, "attempt %d has no due time: %s", line.Attempt, l.signs())
		return
	}
	wait := l.load.Steps[min(line.Attempt-1, len(l.load.Steps))-1]
	due := int64(math.MaxInt64)
	for _, f := range before {
		due = min(due, f.At+min(0, l.behind(f.Process, f.At))+int64(wait))
	}
	for _, d := range l.doubted {
		if d.At < line.At {
			due = min(due, d.At+min(0, l.behind(d.Process, d.At))+int64(wait))
			for _, f := range before {
				due = min(due, f.At+int64(wait)-l.anyAhead(f.At, d.At))
			}
		}
	}
	if earliest := due - l.ahead(line.Process, line.At); line.At < earliest {
		l.violatef(Early, l.ID, "attempt %d ran %s before its wait of %s was over: %s", line.Attempt, time.Duration(earliest-line.At), wait, l.signs())
	}
	l.verdict.Late = append(l.verdict.Late, time.Duration(line.Local-line.Due))
}

// behind is by how much a process's clock was wrong, at least, when redeliver looked at it after a handler's end.
func (c *checker) behind(process string, at int64) int64 {
	// The step and the line that tells of it are not one moment, nor are the handler's end and redeliver's look.
	return slices.Min(c.offsets(process, at-int64(100*time.Millisecond), at+int64(time.Second)))
}

// ahead is by how much a process's clock was ahead at most, until then: what it took to be due then is run now.
func (c *checker) ahead(process string, at int64) int64 {
	return slices.Max(c.offsets(process, math.MinInt64, at))
}

// anyAhead is by how much any process's clock was ahead at most, from one moment to another.
func (c *checker) anyAhead(from, to int64) int64 {
	most := int64(0)
	for process := range c.clocks {
		most = max(most, slices.Max(c.offsets(process, from, to)))
	}
	return most
}

// offsets are by how much a process's clock was wrong at a moment, and what it was set to from then until another.
func (c *checker) offsets(process string, from, to int64) []int64 {
	all := []int64{0}
	for _, l := range c.clocks[process] {
		switch {
		case l.At < from:
			all[0] = l.Offset
		case l.At <= to:
			all = append(all, l.Offset)
		}
	}
	return all
}

func (l *life) end(line Line) {
	switch line.Outcome {
	case OK:
		l.commit = append(l.commit, line)
	case Failed:
		l.failed[line.Attempt] = append(l.failed[line.Attempt], line)
	}
}

func (l *life) dead(line Line) {
	l.same(line)
	l.buried = append(l.buried, line)
}

// same wants the bytes and the name that the message has had before.
func (l *life) same(line Line) {
	if line.Sum != l.Sum {
		l.violatef(Altered, l.ID, "%s by %s: the body's sum is %08x, %08x was written", line.Kind, line.Process, line.Sum, l.Sum)
	}
	if l.name == "" {
		l.name = line.Name
	}
	if line.Name != l.name {
		l.violatef(Renamed, l.ID, "it was %q, and is %q in attempt %d", l.name, line.Name, line.Attempt)
	}
}

// close looks at the message's ends.
func (l *life) close() {
	v := l.verdict
	if l.confirmed {
		v.Messages++
	} else if len(l.lines) > 0 {
		v.Unconfirmed++
	}
	switch {
	case len(l.commit) > 0 && len(l.buried) > 0:
		l.violatef(TwoEnds, l.ID, "%s", l.signs())
	case len(l.commit) > 0 && l.Rule == Always:
		l.violatef(WrongEnd, l.ID, "it always fails, and was committed: %s", l.signs())
	case len(l.buried) > 0 && l.Rule != Always:
		l.violatef(WrongEnd, l.ID, "it fails %s, and is in the DLQ, %s: %s", l.Rule, l.buried[0].Reason, l.signs())
	case len(l.commit)+len(l.buried) == 0 && (l.confirmed || len(l.began) > 0):
		l.violatef(Lost, l.ID, "%s", l.signs())
	}
	if len(l.commit) > 0 {
		v.Committed++
	}
	if len(l.buried) > 0 {
		v.Dead++
	}
	for _, d := range l.buried {
		if most := l.load.attempts(Always); d.Reason != "exhausted" || d.Attempt != most {
			l.violatef(WrongEnd, l.ID, "in the DLQ it is %s after %d attempts, want exhausted after %d", d.Reason, d.Attempt, most)
		}
	}
	// A commit again is a run again, which was looked at. A dead letter is one of a last failure, or written twice; when,
	// nobody knows, so anything from the message's first run on may explain it.
	v.EndsAgain += max(0, len(l.commit)-1) + max(0, len(l.buried)-1)
	last := l.load.attempts(Always)
	if n := len(l.buried); n > max(1, len(l.failed[last])) && !l.explained(l.began[1][0].At, l.buried[n-1].At) && !l.tried[try{l.name, last}] {
		l.violatef(Again, l.ID, "it is %d times in the DLQ, and there was no fault", n)
	}
	if len(l.commit)+len(l.buried) > 0 {
		for n := 1; n <= l.load.attempts(l.Rule); n++ {
			if len(l.began[n]) == 0 {
				l.violatef(Skipped, l.ID, "it ended, and attempt %d never ran: %s", n, l.signs())
			}
		}
	}
}

// signs are the message's signs of life, for people.
func (m *message) signs() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s key %s at %d/%d", m.Load, m.Rule, m.Key, m.Partition, m.Offset)
	for _, l := range m.lines {
		fmt.Fprintf(&b, " %s%s%d@%s#%s", l.Kind, l.Outcome, l.Attempt, time.Unix(0, l.At).UTC().Format("05.000"), l.Process)
	}
	return b.String()
}
