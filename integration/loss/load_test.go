package loss

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// load makes the work of consumers slow or plentiful, and kills none of them. The zero value changes nothing.
type load struct {
	// Via is the address of a link through which they reach the broker.
	Via string `json:"via"`
	// Takes is the duration of every run of a handler.
	Takes time.Duration `json:"takes"`
	// InFlight is MaxInFlight.
	InFlight int `json:"inFlight"`
	// SendTimeout is how long a try to write may take.
	SendTimeout time.Duration `json:"sendTimeout"`
	// Missed is how soon the broker gives up a silent consumer: Kafka's session, RabbitMQ's heartbeat, the visibility
	// timeout of SQS. On Redis it is redisLife.
	Missed time.Duration `json:"missed"`
}

// reach returns the address to dial for a broker at addr.
func (s load) reach(addr string) string {
	if s.Via != "" {
		return s.Via
	}
	return addr
}

// handlerRun is a run of a handler.
type handlerRun struct {
	run
	process  int
	from, to time.Time // to is zero for an interrupted one
}

// runsOf pairs the beginnings and ends of handlers.
func runsOf(journal []line) []handlerRun {
	lines := slices.SortedStableFunc(slices.Values(journal), func(a, b line) int { return a.at.Compare(b.at) })
	var all []handlerRun
	open := make(map[string]int) // index into all
	for _, l := range lines {
		at := fmt.Sprintf("%d %s %d", l.process, l.id, l.attempt)
		switch l.kind {
		case entered:
			open[at] = len(all)
			all = append(all, handlerRun{run: run{l.id, l.attempt}, process: l.process, from: l.at})
		case succeeded, failed:
			if i, ok := open[at]; ok {
				all[i].to = l.at
				delete(open, at)
			}
		case joined, lostConnection, ignored, killed, refused, changed: // no runs
		}
	}
	return all
}

// cutOff returns how many runs have a beginning and no end.
func cutOff(runs []handlerRun) (n int) {
	for _, r := range runs {
		if r.to.IsZero() {
			n++
		}
	}
	return n
}

// atOnce returns the maximum number of handlers of one process that worked at the same time, of first attempts and of
// retries.
func atOnce(runs []handlerRun) (first, again int) {
	type edge struct {
		at      time.Time
		process int
		retry   bool
		more    int
	}
	var edges []edge
	for _, r := range runs {
		if r.to.IsZero() {
			continue // it was interrupted at an unknown time
		}
		edges = append(edges, edge{r.from, r.process, r.attempt > 1, 1}, edge{r.to, r.process, r.attempt > 1, -1})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.at.Compare(b.at) })
	now := make(map[edge]int) // by process and whether it is a retry
	for _, e := range edges {
		k := edge{process: e.process, retry: e.retry}
		now[k] += e.more
		if e.retry {
			again = max(again, now[k])
		} else {
			first = max(first, now[k])
		}
	}
	return first, again
}

// count returns the number of entries of one kind in the journals. An empty text matches any.
func count(journal []line, k kind, text string) (n int) {
	for _, l := range journal {
		if l.kind == k && (text == "" || l.text == text) {
			n++
		}
	}
	return n
}

// The texts of redeliver about its intake and its session.
const (
	intakePaused  = "intake paused"
	intakeResumed = "intake resumed"
	disconnected  = "disconnected"
)

// closedTimes returns the times in which each process has reported that its intake is paused.
func closedTimes(journal []line) map[int][]outage {
	lines := slices.SortedStableFunc(slices.Values(journal), func(a, b line) int { return a.at.Compare(b.at) })
	closed := make(map[int][]outage)
	since := make(map[int]time.Time)
	for _, l := range lines {
		switch {
		case l.kind == changed && l.text == intakePaused:
			since[l.process] = l.at
		case l.kind == changed && l.text == intakeResumed && !since[l.process].IsZero():
			closed[l.process] = append(closed[l.process], outage{since[l.process], l.at})
			since[l.process] = time.Time{}
		}
	}
	return closed
}

// begunWhile returns the maximum number of handlers that began in such a time. Those in its first moment were under
// way, and the event of the last one may come when the intake is open already.
func begunWhile(runs []handlerRun, closed map[int][]outage) (most int) {
	const moment = 100 * time.Millisecond
	for process, times := range closed {
		for _, o := range times {
			n := 0
			for _, r := range runs {
				if r.process == process && r.from.After(o.from.Add(moment)) && r.from.Before(o.to.Add(-moment)) {
					n++
				}
			}
			most = max(most, n)
		}
	}
	return most
}

// peakMemory returns the maximum resident memory of a process in bytes, or 0 if the system does not report it. The
// kernel's rusage is useless here: it survives exec, so a child would show its parent's memory.
func peakMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for l := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(l, []byte("VmHWM:")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return n << 10
		}
	}
	return 0
}
