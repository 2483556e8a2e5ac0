package history

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what Check found in a history.
type Result struct {
	Violations []Violation

	Messages    int // confirmed to their writer
	Runs        int
	Again       int // repeated runs of an attempt, all explained by faults
	EndsAgain   int // repeated commits and dead letters of a message, all explained by faults
	Committed   int
	Dead        int
	Unconfirmed int             // writes without an answer that were found on the broker
	Faults      map[string]int  // by kind
	Late        []time.Duration // lateness of every retry, ascending, by the clock of the process that ran it
}

// Violation is a broken promise.
type Violation struct {
	Kind   string // one of the kinds below
	ID     string
	Detail string
}

func (v Violation) String() string { return strings.TrimSpace(v.Kind + " " + v.ID + ": " + v.Detail) }

// The kinds of violations.
const (
	Lost      = "lost"      // confirmed to its writer, but has no end
	TwoEnds   = "two ends"  // committed and dead-lettered
	WrongEnd  = "wrong end" // committed although it always fails, dead-lettered although it does not, or another reason
	Early     = "early"     // ran before its wait was over
	Skipped   = "skipped"   // an attempt whose previous attempt has not failed
	TooMany   = "too many"  // more attempts than the rule asks for
	Again     = "again"     // an attempt or an end was repeated, and neither a fault nor a move explains it
	Renamed   = "renamed"   // redeliver's id differs between its attempts
	Altered   = "altered"   // the handler or the DLQ got other bytes than were written
	Unknown   = "unknown"   // it was not written
	OutOfLine = "order"     // a message ran before an earlier one of its key
	Strange   = "strange"   // redeliver reported something that must not happen
	Unsettled = "unsettled" // all faults were healed, and the broker still has unsettled messages
)

// Check compares a history with the promises. It returns an error if the lines are no history.
func Check(lines []Line) (*Result, error) {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	c := &checker{
		result: &Result{Faults: make(map[string]int)}, messages: make(map[string]*message), loads: make(map[string]Load),
		clocks: make(map[string][]Line), tried: make(map[try]bool),
	}
	settled := false
	for _, l := range lines {
		switch l.Kind {
		case Began:
			if l.Run == nil {
				return nil, errors.New("the history's first line does not say what was run")
			}
			c.run = *l.Run
			for _, load := range l.Run.Loads {
				c.loads[load.Name] = load
			}
		case Settled:
			settled = true
		case Said, Started, Stopped, Event:
		case Fault, Healed:
			c.fault(l)
		case Moved:
			c.faults = append(c.faults, interval{what: l.What, target: l.Process, from: l.At, to: l.At})
		case Clock:
			c.clocks[l.Process] = append(c.clocks[l.Process], l)
		case Tried:
			c.tried[try{l.Name, l.Attempt}] = true
		case Odd:
			if l.Reason == DueTime && c.stepped(l.At) {
				if m := c.messages[l.ID]; m != nil {
					m.doubted = append(m.doubted, l)
				}
				continue
			}
			c.violatef(Strange, l.ID, "%s: %s", l.Process, l.What)
		case Write:
			c.messages[l.ID] = &message{Line: l}
		case Written, Begin, End, Dead:
			m := c.messages[l.ID]
			if m == nil {
				c.violatef(Unknown, l.ID, "%s %s", l.Kind, l.Process)
				continue
			}
			m.lines = append(m.lines, l)
			if l.Kind == Written {
				m.confirmed, m.Partition, m.Offset = true, l.Partition, l.Offset
			}
		default:
			return nil, fmt.Errorf("a line of the kind %q", l.Kind)
		}
	}
	if c.run.Broker == "" {
		return nil, errors.New("the history does not say what was run")
	}
	for _, id := range slices.Sorted(maps.Keys(c.messages)) {
		c.checkMessage(c.messages[id])
	}
	c.checkOrder()
	if !settled {
		c.violatef(Unsettled, "", "the run's end found the broker with work left")
	}
	slices.Sort(c.result.Late)
	return c.result, nil
}

type checker struct {
	run      Run
	loads    map[string]Load
	messages map[string]*message
	faults   []interval
	clocks   map[string][]Line // steps by process
	tried    map[try]bool
	result   *Result
}

// try is a failed write of a message that may nevertheless have been accepted.
type try struct {
	name    string
	attempt int
}

// interval is the duration of a fault; to is 0 while it lasts.
type interval struct {
	what, target string
	from, to     int64
}

// message has the lines of a history about one message.
type message struct {
	Line
	confirmed bool
	lines     []Line
	doubted   []Line // lines that report an implausible due time
}

func (c *checker) violatef(kind, id, format string, args ...any) {
	c.result.Violations = append(c.result.Violations, Violation{kind, id, fmt.Sprintf(format, args...)})
}

func (c *checker) fault(l Line) {
	if l.Kind == Fault {
		c.result.Faults[l.What]++
		c.faults = append(c.faults, interval{what: l.What, target: l.Target, from: l.At})
		return
	}
	for i := range slices.Backward(c.faults) {
		if f := &c.faults[i]; f.what == l.What && f.target == l.Target && f.to == 0 {
			f.to = l.At
			return
		}
	}
}

// explained reports whether a fault lasted at any time between two moments, or had just ended.
func (c *checker) explained(from, to int64) bool { return c.faulty(from-int64(c.run.Linger), to) }

// faulty reports whether a fault lasted at any time between two moments.
func (c *checker) faulty(from, to int64) bool {
	return slices.ContainsFunc(c.faults, func(f interval) bool { return f.from <= to && (f.to == 0 || f.to >= from) })
}

// stepped reports whether a clock was stepped in the minutes before.
func (c *checker) stepped(at int64) bool {
	for _, steps := range c.clocks {
		if slices.ContainsFunc(steps, func(l Line) bool { return l.At > at-int64(5*time.Minute) }) {
			return true
		}
	}
	return false
}

// checkMessage checks everything about one message except the order of its key.
func (c *checker) checkMessage(m *message) {
	load, ok := c.loads[m.Load]
	if !ok {
		c.violatef(Unknown, m.ID, "there is no load %q", m.Load)
		return
	}
	l := messageCheck{checker: c, message: m, load: load, began: make(map[int][]Line), failed: make(map[int][]Line)}
	for _, line := range m.lines {
		switch line.Kind {
		case Begin:
			l.begin(line)
		case End:
			l.end(line)
		case Dead:
			l.dead(line)
		default: // Written is handled elsewhere
		}
	}
	l.close()
}

// String summarises the result.
func (v *Result) String() string {
	faults := 0
	for _, n := range v.Faults {
		faults += n
	}
	return fmt.Sprintf("%d messages (%d more without an answer to their writer), %d faults of %d kinds, %d violations; %d committed, %d dead letters; %d runs, %d of them again, %d ends again; retries late p50 %s p99 %s max %s",
		v.Messages, v.Unconfirmed, faults, len(v.Faults), len(v.Violations), v.Committed, v.Dead, v.Runs, v.Again, v.EndsAgain,
		quantile(v.Late, 0.5), quantile(v.Late, 0.99), quantile(v.Late, 1))
}

// quantile returns a quantile of an ascending list.
func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(len(list)-1, int(q*float64(len(list))))].Round(time.Millisecond)
}
