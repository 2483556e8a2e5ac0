package sqs

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/dlq"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// Plan describes how the subscription of a topic waits: the queues that it uses, those that are
// created at start, how each delay of its policy is spent, and what SQS itself does to the
// messages.
type Plan struct {
	Topic, Queue string
	URL          string // empty if the queue does not exist yet
	FIFO         bool
	Queues       []PlannedQueue
	// State is the DLQ's companion, which is created when somebody first looks into the DLQ.
	// Subscribers do not need it.
	State  PlannedQueue
	Delays []delayqueue.PlannedDelay
	// Rights are those that a subscriber needs if all queues exist (Config.NoProvisioning).
	// OperatorRights are those that a person needs to look into the DLQ and to replay its messages
	// if State exists as well.
	Rights, OperatorRights []Right
	// LongestWait is the longest wait that a handler may ask for.
	LongestWait time.Duration
	// MaxMessageSize is how many bytes body and attributes may have.
	MaxMessageSize int
	// Notes are further findings, such as limits or a RedrivePolicy of the queue itself.
	Notes []string
	// NotChecked lists what was not checked, and why.
	NotChecked []string
}

// PlannedQueue is the subscription's queue, or one of redeliver's.
type PlannedQueue struct {
	Name       string
	Kind       string            // "queue", "suspects" or "dlq"; "state" of Plan.State
	ARN        string            // empty if unknown
	Attributes map[string]string // those that it has or is created with; nil if unknown
	Exists     bool              // false: it is created at start
	// Messages is about how many messages the queue has, delayed and received ones included; -1
	// means unknown.
	Messages int64
}

// Plan compares SQS with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe: a policy that cannot be met is
// refused, not clamped, with all problems in one redeliver.ConfigError.
func (c *Client) Plan(ctx context.Context, topic string) (*Plan, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, api.ErrClosed
	}
	l, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	return l.plan(&c.cfg), nil
}

func (l *layout) plan(cfg *Config) *Plan {
	p := &Plan{
		Topic: l.topic, Queue: l.main.Name, URL: l.main.URL, FIFO: l.main.FIFO, LongestWait: l.maxHandlerWait(), MaxMessageSize: l.main.MaxSize,
		Notes: l.notes, NotChecked: l.unchecked,
	}
	for _, q := range l.queues() {
		planned := PlannedQueue{Name: q.Name, Kind: string(q.Kind), ARN: q.ARN, Exists: q.Exists, Attributes: maps.Clone(q.Attributes)}
		if !q.Exists {
			planned.Attributes = l.desiredAttributes(cfg, q)
		} else if counts, err := q.LastCounts(); err == nil {
			planned.Messages = counts.All()
		} else {
			planned.Messages = -1
		}
		p.Queues = append(p.Queues, planned)
	}
	if l.dlq != nil {
		p.State = PlannedQueue{Name: dlq.StateName(l.dlq.Name), Kind: "state", Attributes: dlq.StateAttributes(p.Queues[2].Attributes), Messages: -1}
	}
	p.Rights, p.OperatorRights = l.rights(), l.operatorRights()
	var listed bool
	if p.Delays, listed = delayqueue.PlanDelays(l.policy, l.planDelay); !listed {
		p.Notes = append(p.Notes, "the backoff cannot list its delays")
	}
	p.Notes = append(p.Notes, engine.Notes(l.policy)...)
	if l.main.FIFO {
		p.Notes = append(p.Notes,
			"a message of a group that waits holds up the later ones of its group; other groups go on",
			fmt.Sprintf("a message waits in the memory of the process that failed it: in another process its attempts begin again; "+
				"SQS hides it until it is due and for VisibilityTimeout (%s) after that", cfg.VisibilityTimeout))
	} else {
		p.Notes = append(p.Notes, fmt.Sprintf("a message that leaves no room for redeliver's state within %d bytes waits hidden, for at most %s since it was received",
			l.main.MaxSize, limits.DurationText(maxVisibility)))
	}
	return p
}

// planDelay returns the delay of each copy of a wait, and a description.
func (l *layout) planDelay(d time.Duration) (hops []time.Duration, mechanism string) {
	if l.main.FIFO {
		return nil, "in the process, hidden from others (visibility timeout)"
	}
	left, maxDelay := d, l.main.MaxDelay()
	for left >= time.Second {
		hop := min(left, maxDelay).Truncate(time.Second)
		hops = append(hops, hop)
		left -= hop
	}
	switch full := int(d / maxDelay); {
	case len(hops) == 0:
		return hops, "a copy, held by the process that receives it"
	case len(hops) == 1:
		mechanism = "a copy with DelaySeconds " + strconv.Itoa(int(hops[0]/time.Second))
	case d%maxDelay < time.Second:
		mechanism = fmt.Sprintf("%d copies one after another, DelaySeconds %d", full, int(maxDelay/time.Second))
	default:
		mechanism = fmt.Sprintf("%d copies one after another, DelaySeconds %d, the last %s", len(hops), int(maxDelay/time.Second), delayqueue.LevelName(hops[len(hops)-1]))
	}
	if left > 0 {
		mechanism += ", the last " + left.String() + " held by the process that receives it"
	}
	return hops, mechanism
}

// String formats the plan for people.
func (p *Plan) String() string {
	var b strings.Builder
	what := "standard"
	if p.FIFO {
		what = "FIFO"
	}
	fmt.Fprintf(&b, "queue %s, Amazon SQS %s\n\n", p.Queue, what)
	delayqueue.WriteTable(&b, "queue\tkind\tmessages\t", func(w io.Writer) {
		for _, q := range p.Queues {
			state, messages := "exists", "not known"
			if !q.Exists {
				state = "is created"
			}
			if q.Messages >= 0 {
				messages = strconv.FormatInt(q.Messages, 10)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", q.Name, q.Kind, messages, state)
		}
	})
	delayqueue.WriteDelays(&b, "waits as", p.Delays)
	fmt.Fprintf(&b, "longest wait that a handler may ask for: %s; never early, a few milliseconds late\n", limits.DurationText(p.LongestWait))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, n := range p.NotChecked {
		fmt.Fprintf(&b, "not checked: %s\n", n)
	}
	return b.String()
}

// Right is a set of actions that AWS must allow on a queue.
type Right struct {
	Queue   string
	ARN     string   // empty if unknown
	Actions []string // "sqs:ReceiveMessage", ...
}

// findActions returns the actions needed to find a queue and read its attributes.
func findActions(more ...string) []string {
	return append([]string{"sqs:GetQueueUrl", "sqs:GetQueueAttributes"}, more...)
}

// readActions returns the actions needed to process a queue's messages.
func readActions(more ...string) []string {
	return append(findActions("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"), more...)
}

const sendAction = "sqs:SendMessage"

// rights returns the rights of a subscriber. It sends to its queue what waits as a copy; on a FIFO queue, only the retries
// of suspects.
func (l *layout) rights() []Right {
	main := readActions(sendAction, "sqs:ListQueueTags")
	all := []Right{{l.main.Name, l.main.ARN, main}, {l.suspects.Name, l.suspects.ARN, readActions(sendAction)}}
	if l.dlq != nil {
		all = append(all, Right{l.dlq.Name, l.dlq.ARN, findActions(sendAction)})
	}
	return all
}

// operatorRights returns the rights of a person who works on the DLQ.
func (l *layout) operatorRights() []Right {
	if l.dlq == nil {
		return nil
	}
	return []Right{
		{l.main.Name, l.main.ARN, findActions(sendAction, "sqs:ListQueueTags", "sqs:TagQueue", "sqs:UntagQueue")}, // for a replay, and for a pause
		{l.dlq.Name, l.dlq.ARN, readActions(sendAction)},                                                          // an import sends
		{dlq.StateName(l.dlq.Name), "", readActions(sendAction)},
	}
}
