package kafka

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
)

// Plan says how the subscription of a topic waits: which topics it uses, also
// those that are created later, and how each delay of its policy is spent.
type Plan struct {
	Origin, Group string
	Topics        []PlannedTopic
	// Companions are topics without which messages wait and come back all the same: the
	// DLQ's state is of who works on the DLQ, and made when that is done first; the other
	// has the commands about messages that wait, and is made with the first of them.
	Companions []PlannedTopic
	Delays     []PlannedDelay
	// Rights are what the group's members need where all topics are there already
	// (Config.NoProvisioning), and OperatorRights what it takes to look into the DLQ,
	// to send its messages back, and to ask Doctor, where the companions are there, too.
	Rights, OperatorRights []Right
	// LongestWait is the longest wait that a handler may ask for.
	LongestWait time.Duration
	// Notes are what is worth knowing: old levels, short retention.
	Notes []string
}

// PlannedTopic is one topic of ours.
type PlannedTopic struct {
	Name       string
	Kind       string        // "delay", "retry" or "dlq"; "state" and "control" of companions
	Level      time.Duration // of a delay topic
	Partitions int32
	Replicas   int16
	Settings   map[string]string
	Exists     bool // false: it is created at start, or, where Later says so, when a message needs it
	Later      bool // a level for waits that only a handler or a publisher asks for
	Old        bool // a level of an older policy, read until it is empty
}

// PlannedDelay is the wait before one retry.
type PlannedDelay struct {
	Retry     int           // 1 for the first retry
	Delay     time.Duration // without jitter; 0 is an immediate try
	Jitter    time.Duration // the most that is added
	Hops      []time.Duration
	Mechanism string
}

// Plan asks the broker what there is and says what Subscribe would use and
// create, without creating anything. It returns the error that Subscribe would
// return: what cannot be met is refused, not clamped. ctx is asked before the
// broker is; a request that has begun ends by the timeouts of Config.Sarama.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("kafka: planning %s: %w", topic, context.Cause(ctx))
	}
	l, err := c.layout(topic)
	if err != nil {
		return nil, err
	}
	if err := c.verifyFresh(l); err != nil {
		return nil, err
	}
	return l.plan(), nil
}

func (l *layout) plan() *Plan {
	p := &Plan{
		Origin: l.origin, Group: l.group, Companions: l.companions(), Rights: l.rights(), OperatorRights: l.operatorRights(), LongestWait: l.maxWait,
	}
	for _, t := range l.topics {
		p.Topics = append(p.Topics, t.planned())
		if t.old {
			p.Notes = append(p.Notes, fmt.Sprintf("%s is a level of an older policy; it is read until it is deleted", t.name))
		}
	}
	if l.discards {
		p.Notes = append(p.Notes, "there is no DLQ: a message that is not retried is reported, and lost (DLQ.Discard)")
	}
	for _, w := range l.unfit {
		p.Notes = append(p.Notes, w.String()+" (nothing is refused for it: what waits there is read, and longer waits hop over the other levels)")
	}
	for _, w := range l.warnings {
		p.Notes = append(p.Notes, w.String()+" (nothing is refused for it: it is a level of an older policy)")
	}
	if l.policy.Order == redeliver.PerKey {
		p.Notes = append(p.Notes, "the Order is PerKey: what stands behind a failed message of its key waits on the levels, too; the group's other members must have such a policy as well")
	}
	if l.maxWait < redeliver.MaxWait {
		p.Notes = append(p.Notes, fmt.Sprintf("the retention of the delay topics is limited: a handler may ask for %s at most, more is dead-lettered as unschedulable", l.maxWait))
	}
	for n := range l.policy.Immediate {
		p.Delays = append(p.Delays, PlannedDelay{Retry: n + 1, Mechanism: "at once, in the process"})
	}
	delays, jitter, ok := l.policy.Delays()
	if !ok {
		p.Notes = append(p.Notes, "the backoff cannot list its delays; the levels are the default ones")
	}
	if untold := engine.Untold(l.policy); untold != "" {
		p.Notes = append(p.Notes, untold)
	}
	for i, d := range delays {
		hops := l.ladder.Path(d)
		p.Delays = append(p.Delays, PlannedDelay{
			Retry: l.policy.Immediate + i + 1, Delay: d, Jitter: jitter, Hops: hops, Mechanism: l.mechanism(d, hops),
		})
	}
	return p
}

// companions are the topics of who works on the DLQ, and of commands.
func (l *layout) companions() []PlannedTopic {
	if l.discards {
		return []PlannedTopic{l.control.planned()}
	}
	return []PlannedTopic{l.state.planned(), l.control.planned()}
}

func (t ownTopic) planned() PlannedTopic {
	return PlannedTopic{
		Name: t.name, Kind: string(t.kind), Level: t.level, Partitions: t.partitions, Replicas: t.replicas,
		Settings: t.settings, Exists: t.exists, Old: t.old, Later: t.rung,
	}
}

// mechanism tells in words how a wait is spent.
func (l *layout) mechanism(d time.Duration, hops []time.Duration) string {
	if len(hops) == 0 {
		return "held by the reader of the retry topic"
	}
	parts := make([]string, len(hops))
	for i, h := range hops {
		parts[i] = delayqueue.LevelName(h)
		d -= h
	}
	text := "delay topic " + strings.Join(parts, ", then ")
	if d > 0 {
		text += ", the last " + d.String() + " held by its reader"
	}
	return text
}

// String is the plan as a text for people.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, group %s\n\n", p.Origin, p.Group)
	table(&b, "topic\tkind\tpartitions\treplicas\t", func(w io.Writer) {
		for _, t := range p.Topics {
			state := "is created"
			switch {
			case t.Exists:
				state = "exists"
			case t.Later:
				state = "is created when a wait needs it"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Name, t.Kind, t.Partitions, t.Replicas, state)
		}
	})
	fmt.Fprintln(&b)
	table(&b, "retry\tafter\tjitter up to\twaits on", func(w io.Writer) {
		for _, d := range p.Delays {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", d.Retry, d.Delay, d.Jitter, d.Mechanism)
		}
	})
	fmt.Fprintf(&b, "\nlongest wait that a handler may ask for: %s; never early, precise to a few milliseconds\n", p.LongestWait)
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

func table(b *strings.Builder, header string, rows func(io.Writer)) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	rows(w)
	_ = w.Flush() // a Builder takes everything
}
