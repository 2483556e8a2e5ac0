package delayqueue

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redeliver/redeliver"
)

// PlannedDelay is the wait before one retry, in the plan of an adapter.
type PlannedDelay struct {
	Retry     int           // 1 for the first retry
	Delay     time.Duration // without jitter; 0 is an immediate try
	Jitter    time.Duration // the maximum jitter that is added to Delay
	Hops      []time.Duration
	Mechanism string // a description of where the message waits
}

// PlanDelays returns the waits of a policy. For each, describe returns the hops and where the message waits. listed is false if the backoff cannot list its delays.
func PlanDelays(p redeliver.Policy, describe func(time.Duration) (hops []time.Duration, mechanism string)) (all []PlannedDelay, listed bool) {
	for range p.Immediate {
		all = append(all, PlannedDelay{Retry: len(all) + 1, Mechanism: "at once, in the process"})
	}
	delays, _, listed := p.Delays()
	for i, longest := range p.LongestDelays() {
		d := delays[i]
		hops, mechanism := describe(d)
		all = append(all, PlannedDelay{Retry: len(all) + 1, Delay: d, Jitter: longest - d, Hops: hops, Mechanism: mechanism})
	}
	return all, listed
}

// Describe returns the hops of a wait and a description of where a message waits. kind is the kind of place ("delay
// topic"). A reader of the place reader holds it for the rest.
func (l Ladder) Describe(d time.Duration, kind, reader string) (hops []time.Duration, mechanism string) {
	hops = l.Path(d)
	if len(hops) == 0 {
		return nil, "held by the reader of " + reader
	}
	names := make([]string, len(hops))
	for i, h := range hops {
		names[i] = LevelName(h)
		d -= h
	}
	mechanism = kind + " " + strings.Join(names, ", then ")
	if d > 0 {
		mechanism += ", the last " + d.String() + " held by the reader of " + reader
	}
	return hops, mechanism
}

// WriteDelays writes delays as a table. waits is the heading of the column with the places, such as "waits on".
func WriteDelays(w io.Writer, waits string, all []PlannedDelay) {
	WriteTable(w, "retry\tafter\tjitter up to\t"+waits, func(w io.Writer) {
		for _, d := range all {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", d.Retry, d.Delay, d.Jitter, d.Mechanism)
		}
	})
}

// WriteTable writes a table whose cells end with tabs, followed by an empty line. w must not return errors.
func WriteTable(w io.Writer, header string, rows func(io.Writer)) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	rows(table)
	_ = table.Flush()
	fmt.Fprintln(w)
}
