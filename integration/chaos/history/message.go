package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// messageCheck is a message while its lines are checked in order.
type messageCheck struct {
	*checker
	*message
	load        Load
	name        string
	began       map[int][]Line // by attempt
	failed      map[int][]Line // by attempt
	commit      []Line
	deadLetters []Line
}

func (l *messageCheck) begin(line Line) {
	v := l.result
	v.Runs++
	l.same(line)
	if most := l.load.attempts(l.Rule); line.Attempt > most {
		l.violatef(TooMany, l.ID, "attempt %d, and a message that fails %s has %d: %s", line.Attempt, l.Rule, most, l.describe())
	}
	if before := l.began[line.Attempt]; len(before) > 0 {
		v.Again++
		last := before[len(before)-1]
		// Each failure of the previous attempt led to a write. If that attempt ran twice, this one may run twice, too,
		// at any time.
		if len(before) >= len(l.failed[line.Attempt-1]) && !l.explained(last.At, line.At) && !l.doubtful(line.Attempt-1) {
			l.violatef(Again, l.ID, "attempt %d ran again after %s, and there was no fault: %s", line.Attempt, time.Duration(line.At-last.At), l.describe())
		}
	}
	l.began[line.Attempt] = append(l.began[line.Attempt], line)
	l.timing(line)
}

// doubtful reports whether an attempt or its write failed during a fault, or shortly before one, or while the machine
// was paused. The write may then have been made twice, and both copies may wait behind other messages for minutes.
func (l *messageCheck) doubtful(attempt int) bool {
	const takes = 5 * time.Second // maximum duration of a write
	return l.tried[try{l.name, attempt}] || slices.ContainsFunc(l.failed[attempt], func(f Line) bool { return l.faulty(f.At, f.At+int64(takes)) })
}

// timing compares a run with the failure before it. The due time is by the clock of the process that failed. The
// process that runs the message uses its own clock, which may have been stepped since. An implausibly late due time
// need not be met. It arises if the writer's clock was ahead, or the reader's clock is behind. The reader then keeps
// the wait itself, by its own clock, which may be corrected before the wait is over. A due time need not be met either
// if a third process, whose clock was ahead, took the message from its level too soon.
func (l *messageCheck) timing(line Line) {
	if line.Attempt == 1 {
		// The due times of a message that waits behind another of its key, and of a suspect, have no meaning.
		if line.Due != 0 && l.load.Order != OrderThroughRetries && !l.load.Suspects {
			l.violatef(Early, l.ID, "a first attempt with a due time: %s", l.describe())
		}
		return
	}
	before := l.failed[line.Attempt-1]
	if len(before) == 0 {
		l.violatef(Skipped, l.ID, "attempt %d, and attempt %d has not failed: %s", line.Attempt, line.Attempt-1, l.describe())
		return
	}
	if line.Due == 0 {
		l.violatef(Early, l.ID, "attempt %d has no due time: %s", line.Attempt, l.describe())
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
		l.violatef(Early, l.ID, "attempt %d ran %s before its wait of %s was over: %s", line.Attempt, time.Duration(earliest-line.At), wait, l.describe())
	}
	l.result.Late = append(l.result.Late, time.Duration(line.Local-line.Due))
}

// behind returns the minimum error of a process's clock when redeliver read it after the end of a handler.
func (c *checker) behind(process string, at int64) int64 {
	// The step and the line that reports it are not simultaneous, nor are the end of the handler and redeliver's
	// reading.
	return slices.Min(c.offsets(process, at-int64(100*time.Millisecond), at+int64(time.Second)))
}

// ahead returns the maximum by which a process's clock was ahead until then: messages that were due by it are run now.
func (c *checker) ahead(process string, at int64) int64 {
	return slices.Max(c.offsets(process, math.MinInt64, at))
}

// anyAhead returns the maximum by which any process's clock was ahead between two moments.
func (c *checker) anyAhead(from, to int64) int64 {
	most := int64(0)
	for process := range c.clocks {
		most = max(most, slices.Max(c.offsets(process, from, to)))
	}
	return most
}

// offsets returns the error of a process's clock at a moment, and its errors from then until another moment.
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

func (l *messageCheck) end(line Line) {
	switch line.Outcome {
	case OK:
		l.commit = append(l.commit, line)
	case Failed:
		l.failed[line.Attempt] = append(l.failed[line.Attempt], line)
	}
}

func (l *messageCheck) dead(line Line) {
	l.same(line)
	l.deadLetters = append(l.deadLetters, line)
}

// same checks that the message has the same bytes and name as before.
func (l *messageCheck) same(line Line) {
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

// close checks the message's ends.
func (l *messageCheck) close() {
	v := l.result
	if l.confirmed {
		v.Messages++
	} else if len(l.lines) > 0 {
		v.Unconfirmed++
	}
	switch {
	case len(l.commit) > 0 && len(l.deadLetters) > 0:
		l.violatef(TwoEnds, l.ID, "%s", l.describe())
	case len(l.commit) > 0 && l.Rule == Always:
		l.violatef(WrongEnd, l.ID, "it always fails, and was committed: %s", l.describe())
	case len(l.deadLetters) > 0 && l.Rule != Always:
		l.violatef(WrongEnd, l.ID, "it fails %s, and is in the DLQ, %s: %s", l.Rule, l.deadLetters[0].Reason, l.describe())
	case len(l.commit)+len(l.deadLetters) == 0 && (l.confirmed || len(l.began) > 0):
		l.violatef(Lost, l.ID, "%s", l.describe())
	}
	if len(l.commit) > 0 {
		v.Committed++
	}
	if len(l.deadLetters) > 0 {
		v.Dead++
	}
	for _, d := range l.deadLetters {
		if most := l.load.attempts(Always); d.Reason != "exhausted" || d.Attempt != most {
			l.violatef(WrongEnd, l.ID, "in the DLQ it is %s after %d attempts, want exhausted after %d", d.Reason, d.Attempt, most)
		}
	}
	// A repeated commit follows a repeated run, which was checked. A repeated dead letter follows a repeated last
	// failure, or was written twice. Its time is unknown, so anything since the message's first run may explain it.
	v.EndsAgain += max(0, len(l.commit)-1) + max(0, len(l.deadLetters)-1)
	last := l.load.attempts(Always)
	if n := len(l.deadLetters); n > max(1, len(l.failed[last])) && !l.explained(l.began[1][0].At, l.deadLetters[n-1].At) && !l.tried[try{l.name, last}] {
		l.violatef(Again, l.ID, "it is %d times in the DLQ, and there was no fault", n)
	}
	if len(l.commit)+len(l.deadLetters) > 0 {
		for n := 1; n <= l.load.attempts(l.Rule); n++ {
			if len(l.began[n]) == 0 {
				l.violatef(Skipped, l.ID, "it ended, and attempt %d never ran: %s", n, l.describe())
			}
		}
	}
}

// describe lists the lines about the message, for people.
func (m *message) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s key %s at %d/%d", m.Load, m.Rule, m.Key, m.Partition, m.Offset)
	for _, l := range m.lines {
		fmt.Fprintf(&b, " %s%s%d@%s#%s", l.Kind, l.Outcome, l.Attempt, time.Unix(0, l.At).UTC().Format("05.000"), l.Process)
	}
	return b.String()
}
