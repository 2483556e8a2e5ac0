package loss

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// strain is what consumers are put under that is no death. Its zero value is nothing of it.
type strain struct {
	// Via is the address of a link by which they reach the broker.
	Via string `json:"via"`
	// Takes is how long a handler works, each time.
	Takes time.Duration `json:"takes"`
	// InFlight is MaxInFlight.
	InFlight int `json:"inFlight"`
	// SendTimeout is how long a try to write may take.
	SendTimeout time.Duration `json:"sendTimeout"`
	// Missed is how soon the broker gives up a consumer that it does not hear of: Kafka's session, RabbitMQ's heartbeat,
	// the visibility timeout of SQS. On Redis redisLife is that.
	Missed time.Duration `json:"missed"`
}

// reach is where a broker of that address is to be dialled.
func (s strain) reach(addr string) string {
	if s.Via != "" {
		return s.Via
	}
	return addr
}

// ran is a run of a handler.
type ran struct {
	run
	process  int
	from, to time.Time // to is zero for one that was cut off
}

// runsOf pairs the beginnings and ends of handlers.
func runsOf(journal []line) []ran {
	lines := slices.SortedStableFunc(slices.Values(journal), func(a, b line) int { return a.at.Compare(b.at) })
	var all []ran
	open := make(map[string]int) // where in all
	for _, l := range lines {
		at := fmt.Sprintf("%d %s %d", l.process, l.id, l.attempt)
		switch l.kind {
		case entered:
			open[at] = len(all)
			all = append(all, ran{run: run{l.id, l.attempt}, process: l.process, from: l.at})
		case succeeded, failed:
			if i, ok := open[at]; ok {
				all[i].to = l.at
				delete(open, at)
			}
		case joined, parted, ignored, killed, refused, told: // no runs
		}
	}
	return all
}

// cutOff is how many runs have a beginning and no end.
func cutOff(runs []ran) (n int) {
	for _, r := range runs {
		if r.to.IsZero() {
			n++
		}
	}
	return n
}

// atOnce is how many handlers of one process worked at the same time, at most, of first attempts and of retries.
func atOnce(runs []ran) (first, again int) {
	type edge struct {
		at      time.Time
		process int
		retry   bool
		more    int
	}
	var edges []edge
	for _, r := range runs {
		if r.to.IsZero() {
			continue // it was cut off, and nobody knows when
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

// count counts the entries of one kind in the journals; text is the entry's text, or empty for any.
func count(journal []line, k kind, text string) (n int) {
	for _, l := range journal {
		if l.kind == k && (text == "" || l.text == text) {
			n++
		}
	}
	return n
}

// The words of redeliver for its intake and its session.
const (
	intakePaused  = "intake paused"
	intakeResumed = "intake resumed"
	disconnected  = "disconnected"
)

// closedTimes are those in which a process has said that it takes nothing in.
func closedTimes(journal []line) map[int][]outage {
	lines := slices.SortedStableFunc(slices.Values(journal), func(a, b line) int { return a.at.Compare(b.at) })
	closed := make(map[int][]outage)
	since := make(map[int]time.Time)
	for _, l := range lines {
		switch {
		case l.kind == told && l.text == intakePaused:
			since[l.process] = l.at
		case l.kind == told && l.text == intakeResumed && !since[l.process].IsZero():
			closed[l.process] = append(closed[l.process], outage{since[l.process], l.at})
			since[l.process] = time.Time{}
		}
	}
	return closed
}

// begunWhile is how many handlers began in such a time, at most: those that come in its first moment were on their way, and
// the event of the last one comes when the intake is open already.
func begunWhile(runs []ran, closed map[int][]outage) (most int) {
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

// peakMemory is the most that a process has had resident, in bytes, and 0 where the system does not say. The kernel's
// rusage is no good: it survives exec, so a child would show what its parent had.
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
