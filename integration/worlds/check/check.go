// Package check compares the history of a world with the promises. It uses none of redeliver's code: it knows the rules
// from docs/reference.
package check

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Result counts what a world had.
type Result struct {
	Messages int // of all services
	Runs     int
	Again    int // runs of an attempt that had been settled, all explained by faults
	Dead     int
	// Coverage counts words and events by the order of the service: "kill/OrderThroughRetries".
	Coverage map[string]int
}

// The bounds of docs/reference/guarantees.md and docs/how-to/idempotent-handlers.md.
const (
	// commitInterval is how long a settled message may still run again after a kill. The rest of a second is for requests.
	commitInterval = time.Second
	// linger is how long after its end a fault may still be the reason why something runs again: clients wait before they try
	// again, and groups rebalance.
	linger = 30 * time.Second
	// rebalanceTimeout is how long a group may wait for a member that died while it joined. Meanwhile the others cannot commit.
	rebalanceTimeout = 70 * time.Second
	// maxCrashes is the default of Policy.MaxCrashes.
	maxCrashes = 3
	// soon is within what time a group notices a command, or begins a message if it has room.
	soon = 10 * time.Second
	rest = 2 * time.Minute
	// noticed is how long after a topic was deleted, and created again, its new log may be read again from the beginning: members
	// compare topics every 30 s, and then join again.
	noticed = 2 * time.Minute
)

// The kinds of violations beside those of package history.
const (
	NotPaused = "not paused" // a message began although the group was paused
	Late      = "late"       // a message began long after it could
	Left      = "left"       // a message ran although all had ended and their processes had stopped
	Restless  = "restless"   // messages ended long after everything was healed
	Untold    = "untold"     // an administrator deleted a message or denied a request, and no event reports it
	Stale     = "stale"      // an attempt began after the message had expired
)

// Deleted is the event of a message of which a word has deleted a copy.
const Deleted = "deleted"

// Skipped is the event of a message that an operator made a group skip.
const Skipped = "skipped"

// Denied is the event of requests of a process that were denied.
const Denied = "denied"

// Stopping is the event of a process that is told to stop.
const Stopping = "stopping"

// Check compares a history with the promises. It returns an error if the lines are no history of a world.
func Check(lines []history.Line) (Result, []history.Violation, error) {
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b history.Line) int { return cmp.Compare(a.At, b.At) })
	if len(lines) == 0 || lines[0].Run == nil {
		return Result{}, nil, errors.New("the history's first line does not say what was run")
	}
	c := &checker{
		start: lines[0].At, processes: make(map[string]*process), originals: make(map[string]*original), messages: make(map[messageKey]*message), named: make(map[messageKey]*message), uncountedRuns: make(map[uncountedRun]history.Line),
		result: Result{Coverage: make(map[string]int)}, groups: make(map[string]int), deletions: make(map[messageKey][]deletion),
	}
	if err := json.Unmarshal(lines[0].Run.World, &c.world); err != nil {
		return Result{}, nil, fmt.Errorf("the history has no world: %w", err)
	}
	for i, s := range c.world.Services {
		c.groups[s.Group] = i
	}
	for _, l := range lines[1:] {
		c.read(l)
	}
	c.check()
	return c.result, c.violations, nil
}

type checker struct {
	world     plan.World
	start     int64
	groups    map[string]int
	processes map[string]*process
	originals map[string]*original
	messages  map[messageKey]*message
	named     map[messageKey]*message // by their names instead of their ids
	// uncountedRuns are those whose event came before they began.
	uncountedRuns map[uncountedRun]history.Line
	deletions     map[messageKey][]deletion
	denials       []history.Line
	faults        []fault
	pauses        []pause
	events        []history.Line
	moves         []int64 // when processes started and stopped
	healed        int64
	atRest        int64
	settled       bool
	result        Result
	violations    []history.Violation
}

type process struct {
	service  int
	version  plan.Version
	started  int64
	stopping int64 // when it was told to stop, 0 if not
	stopped  int64 // 0 if not
	killed   int64 // when, 0 if not
	slack    time.Duration
}

// original is a message as it was written.
type original struct {
	plan      plan.Message
	sum       uint32
	writes    int
	first     int64 // when it was first written
	last      int64 // when the write that was confirmed began
	written   int64 // when it was confirmed
	partition int32
	offset    int64
}

type messageKey struct {
	service int
	id      string
}

// message is a message in one service.
type message struct {
	*original
	key  messageKey
	name string
	runs []*run
	dead []history.Line
}

// run is one run of the handler.
type run struct {
	*process
	name     string // of the process
	attempt  int
	begin    int64
	due      int64
	end      int64 // 0 if it has none: its process died
	outcome  string
	returned int64 // when its message was returned to the broker while the handler ran; 0 if it was not
	vain     bool  // in a batch with an earlier message of its key that failed; its answer did not count
	shared   bool  // in a batch that failed as a whole; the message ran once more alone
}

// fault is a word that was carried out. to is 0 while it lasts.
type fault struct {
	what, target string
	from, to     int64
}

type pause struct {
	group, topic string
	from, to     int64
}

func (c *checker) violatef(kind, id, format string, args ...any) {
	c.violations = append(c.violations, history.Violation{Kind: kind, ID: id, Detail: fmt.Sprintf(format, args...)})
}

func (c *checker) cover(word string, service int) {
	seen := make(map[string]bool)
	for _, v := range c.world.Services[service].Versions {
		if !seen[v.Order] {
			seen[v.Order] = true
			c.result.Coverage[word+"/"+v.Order]++
		}
	}
}

// read takes a line of the history.
func (c *checker) read(l history.Line) {
	switch l.Kind {
	case history.Write:
		o := c.originals[l.ID]
		if o == nil {
			o = &original{sum: l.Sum}
			for _, m := range c.world.Messages {
				if m.ID == l.ID {
					o.plan = m
				}
			}
			c.originals[l.ID] = o
		}
		if o.writes++; o.writes == 1 {
			o.first = l.At
		}
		o.last = l.At
	case history.Written:
		o := c.originals[l.ID]
		o.written, o.partition, o.offset = l.At, l.Partition, l.Offset
	case history.Started:
		version, _ := strconv.Atoi(l.What)
		service := c.groups[l.Load]
		c.processes[l.Process] = &process{service: service, version: c.world.Services[service].Versions[version], started: l.At, slack: c.world.Bounds.Slack}
		c.moves = append(c.moves, l.At)
	case history.Stopped:
		if p := c.processes[l.Process]; p.stopped == 0 {
			p.stopped = l.At
		}
		c.moves = append(c.moves, l.At)
	case history.Fault:
		if p := c.processes[l.Target]; p != nil && l.What == plan.Kill {
			p.killed = l.At
		}
		c.faults = append(c.faults, fault{what: l.What, target: l.Target, from: l.At})
		c.coverFault(l)
	case history.Healed:
		for i := range slices.Backward(c.faults) {
			if f := &c.faults[i]; f.what == l.What && f.target == l.Target && f.to == 0 {
				f.to = l.At
				break
			}
		}
		for i := range c.pauses {
			if p := &c.pauses[i]; l.What == plan.PauseGroup && p.group == l.Target && p.to == 0 { // one resume ends all
				p.to = l.At
			}
		}
	case history.Event:
		if l.What == Deleted || l.What == Skipped {
			c.readDeleted(l)
			return
		}
		if l.What == Stopping {
			if p := c.processes[l.Process]; p.stopping == 0 {
				p.stopping = l.At
			}
			return
		}
		if l.What == "done: "+plan.PauseGroup {
			c.pauses = append(c.pauses, pause{group: l.Load, topic: l.Target, from: l.At})
		}
		if p := c.processes[l.Process]; p != nil {
			c.cover("event "+l.What, p.service)
		}
		if l.What == runsAgain { // its last commit was refused
			c.faults = append(c.faults, fault{what: runsAgain, target: l.Process, from: l.At - int64(soon), to: l.At})
		}
		if c.world.RealTime && l.What == disconnected { // a busy machine misses heartbeats
			c.faults = append(c.faults, fault{what: disconnected, target: l.Process, from: l.At - int64(soon), to: l.At})
		}
		if l.What == Denied {
			c.denials = append(c.denials, l)
			return
		}
		if l.What == "Abandoned" {
			c.readUncounted(l)
		}
		c.events = append(c.events, l)
	case history.Begin, history.End, history.Dead:
		c.readMessage(l)
	case history.Settled:
		c.settled = true
	case history.Said:
		switch l.What {
		case "healed":
			c.healed = l.At
		case "at rest":
			c.atRest = l.At
		}
	}
}

// The reasons in the events of runs in batches that do not count.
const (
	ranInVain = "an earlier message of its key failed in its batch"
	failedAll = "the batch failed as a whole"
)

// uncountedRun is a run whose answer did not count, as its event names it.
type uncountedRun struct {
	process, name string
	attempt       int
}

// readUncounted marks a run of a batch whose answer does not count. If the time of the batch was over, the event may come before
// the run begins.
func (c *checker) readUncounted(l history.Line) {
	vain, shared := strings.Contains(l.Reason, ranInVain), strings.Contains(l.Reason, failedAll)
	m := c.named[messageKey{c.groups[l.Load], l.Name}]
	if !vain && !shared {
		m.markReturned(l)
		return
	}
	if m != nil {
		for _, r := range slices.Backward(m.runs) {
			if r.name == l.Process && r.attempt == l.Attempt+1 && !r.vain && !r.shared {
				r.mark(vain, shared)
				return
			}
		}
	}
	c.uncountedRuns[uncountedRun{l.Process, l.Name, l.Attempt + 1}] = l
}

// markReturned marks the run of a message that its process returns to the broker.
func (m *message) markReturned(l history.Line) {
	if m == nil {
		return
	}
	for _, r := range m.runs {
		if r.name == l.Process && r.attempt == l.Attempt+1 && r.end == 0 {
			r.returned = l.At
		}
	}
}

func (r *run) mark(vain, shared bool) {
	if r.vain, r.shared = vain, shared; vain {
		r.outcome = history.Cut
	}
}

func (c *checker) coverFault(l history.Line) {
	service, ok := c.groups[l.Target]
	if p := c.processes[l.Target]; p != nil {
		service, ok = p.service, true
	}
	if ok {
		c.cover("word "+l.What, service)
	}
}

func (c *checker) readMessage(l history.Line) {
	o := c.originals[l.ID]
	if o == nil {
		c.violatef(history.Unknown, l.ID, "%s by %s", l.Kind, l.Process)
		return
	}
	k := messageKey{c.groups[l.Load], l.ID}
	m := c.messages[k]
	if m == nil {
		m = &message{original: o, key: k}
		c.messages[k] = m
	}
	if l.Kind != history.End {
		if l.Sum != o.sum {
			c.violatef(history.Altered, l.ID, "%s by %s: the sum is %08x, %08x was written", l.Kind, l.Process, l.Sum, o.sum)
		}
		if m.name == "" {
			m.name = l.Name
			c.named[messageKey{k.service, l.Name}] = m
		}
		if l.Name != m.name && o.writes == 1 {
			c.violatef(history.Renamed, l.ID, "it was %q, and is %q in attempt %d", m.name, l.Name, l.Attempt)
		}
	}
	switch l.Kind {
	case history.Begin:
		p := c.processes[l.Process]
		r := &run{process: p, name: l.Process, attempt: l.Attempt, begin: l.At, due: l.Due}
		m.runs = append(m.runs, r)
		u := uncountedRun{l.Process, l.Name, l.Attempt}
		if e, ok := c.uncountedRuns[u]; ok && e.At == l.At {
			r.mark(strings.Contains(e.Reason, ranInVain), strings.Contains(e.Reason, failedAll))
		}
		delete(c.uncountedRuns, u)
		c.result.Runs++
		if c.atRest != 0 {
			c.violatef(Left, l.ID, "attempt %d began in %s after all had ended: %s", l.Attempt, l.Process, c.describe(m))
		}
		for _, pause := range c.pauses {
			// Gathered batches continue in a pause.
			if c.world.Services[k.service].Way != plan.ConsumeBatch && c.groups[pause.group] == k.service && pause.topic == o.plan.Topic && pause.to == 0 && l.At > pause.from+int64(soon+c.world.Bounds.Pause) &&
				!c.touched(p.service, l.Process, pause.from-2*int64(c.linger()), l.At, plan.PauseGroup) {
				c.violatef(NotPaused, l.ID, "attempt %d began in %s %s after the pause: %s", l.Attempt, l.Process, time.Duration(l.At-pause.from), c.describe(m))
			}
		}
	case history.End:
		for _, r := range m.runs {
			if r.name == l.Process && r.attempt == l.Attempt && r.end == 0 {
				if r.end = l.At; !r.vain {
					r.outcome = l.Outcome
				}
				break
			}
		}
	default:
		m.dead = append(m.dead, l)
	}
}

// The events of a refused last commit, of commits without attempts, of a lost connection, and of a handler's pause.
const (
	pausedByHandler = "paused"
	resumed         = "resumed"
	runsAgain       = "settled messages run again"
	inMemory        = "attempts are counted in memory"
	disconnected    = "disconnected"
)

func (c *checker) linger() time.Duration { return cmp.Or(c.world.Bounds.Linger, linger) }

// harmless are the words that are no faults: nothing may run again because of them.
var harmless = []string{
	plan.Restart, plan.Scale, plan.Deploy, plan.PauseGroup, plan.Dependency, plan.Grow, plan.ExpireOrigin, plan.ExpireLevel, plan.ExpireOffsets, plan.ResetOffsets,
}

// touched reports whether a fault of a service or of its processes lasted between two moments. Faults of whole brokers concern all
// services. A kill concerns the process at once, and the others while the group waits for the dead member. With except, harmless
// words count, too.
func (c *checker) touched(service int, process string, from, to int64, except ...string) bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool {
		if slices.Contains(except, f.what) || slices.Contains(harmless, f.what) && len(except) == 0 {
			return false
		}
		end := f.to
		switch {
		case end == 0:
		case f.what == runsAgain:
		case f.what == plan.DeleteOrigin, f.what == plan.DeleteLevel, f.what == plan.DeleteRetry, f.what == plan.DeleteDLQ:
			end += int64(cmp.Or(c.world.Bounds.Linger, noticed))
		case f.what != plan.Kill:
			end += int64(c.linger())
		case f.target != process:
			end += int64(cmp.Or(c.world.Bounds.Linger, rebalanceTimeout))
		}
		if f.from > to || (end != 0 && end < from) {
			return false
		}
		if p := c.processes[f.target]; p != nil {
			return p.service == service
		}
		return true
	})
}

func (c *checker) check() {
	keys := slices.SortedFunc(maps.Keys(c.messages), func(a, b messageKey) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(len(a.id), len(b.id)), cmp.Compare(a.id, b.id))
	})
	for i, s := range c.world.Services {
		for _, v := range s.Versions {
			c.result.Coverage["way "+string(s.Way)+"/"+v.Order]++
		}
		for id, o := range c.originals {
			if slices.Contains(s.Topics, o.plan.Topic) {
				c.result.Messages++
				if k := (messageKey{i, id}); c.messages[k] == nil && o.written != 0 {
					c.checkLost(&message{original: o, key: k}, "it never ran in "+s.Group)
				}
			}
		}
	}
	for _, k := range keys {
		c.checkMessage(c.messages[k])
	}
	c.checkOrder()
	c.checkLateness()
	c.checkDenials()
	c.checkReplays()
	if !c.settled && len(c.violations) == 0 {
		c.violatef(history.Unsettled, "", "the world did not come to rest")
	}
}

// describe lists the lines about a message, for people.
func (c *checker) describe(m *message) string {
	var b strings.Builder
	at := func(t int64) string { return time.Duration(t - c.start).Round(time.Millisecond).String() }
	fmt.Fprintf(&b, "%s key %s at %d/%d, written %s x%d, script %v:", m.plan.Topic, m.plan.Key, m.partition, m.offset, at(m.written), m.writes, m.plan.Script)
	for i, r := range m.runs {
		if i == 40 {
			fmt.Fprintf(&b, " and %d more", len(m.runs)-i)
			break
		}
		fmt.Fprintf(&b, " #%d %s-", r.attempt, at(r.begin))
		if r.end != 0 {
			b.WriteString(at(r.end))
		}
		fmt.Fprintf(&b, " %s@%s", r.outcome, r.name)
	}
	for _, d := range m.dead {
		fmt.Fprintf(&b, " dead(%s after %d, %s)", d.Reason, d.Attempt, d.What)
	}
	return b.String()
}
