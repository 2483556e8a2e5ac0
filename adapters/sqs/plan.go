package sqs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/dlq"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/mq"
)

// Plan compares SQS with the policy and returns what Subscribe would use and create, without
// creating anything. It returns the same error as Subscribe: a policy that cannot be met is
// refused, not clamped, with all problems in one redeliver.ConfigError.
func (c *client) Plan(ctx context.Context, topic string) (*mq.Plan, error) {
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

func (l *layout) plan(cfg *Config) *mq.Plan {
	p := &mq.Plan{
		Server: "Amazon SQS standard", Origin: l.main.Name, LongestWait: l.maxHandlerWait(),
		Settings: map[string]string{"MaximumMessageSize": strconv.Itoa(l.main.MaxSize)},
		Notes:    l.notes, NotChecked: l.unchecked,
	}
	if l.main.Exists {
		p.Settings["QueueUrl"] = l.main.URL
	}
	if l.main.FIFO {
		p.Server = "Amazon SQS FIFO"
	}
	for _, q := range l.queues() {
		planned := mq.Place{Name: q.Name, Kind: string(q.Kind), ARN: q.ARN, Exists: q.Exists, Settings: mq.SettingsOf(q.Attributes)}
		if !q.Exists {
			planned.Settings = mq.SettingsOf(l.desiredAttributes(cfg, q))
		} else if counts, err := q.LastCounts(); err == nil {
			planned.Messages = counts.All()
		} else {
			planned.Messages = -1
		}
		p.Places = append(p.Places, planned)
	}
	if l.dlq != nil {
		attributes := l.dlq.Attributes
		if !l.dlq.Exists {
			attributes = l.desiredAttributes(cfg, l.dlq)
		}
		p.OperatorPlaces = []mq.Place{{Name: dlq.StateName(l.dlq.Name), Kind: "state", Settings: mq.SettingsOf(dlq.StateAttributes(attributes)), Messages: -1}}
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
			fmt.Sprintf("a message waits hidden until it is due and for VisibilityTimeout (%s) after that; a note in %s has its attempts, also for another process",
				cfg.VisibilityTimeout, l.place.Name))
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
func (l *layout) rights() []mq.Right {
	main := readActions(sendAction, "sqs:ListQueueTags")
	all := []mq.Right{onQueue(l.main.Name, l.main.ARN, main), onQueue(l.suspects.Name, l.suspects.ARN, readActions(sendAction))}
	if l.place != nil {
		all = append(all, onQueue(l.place.Name, l.place.ARN, readActions(sendAction)))
	}
	if l.dlq != nil {
		all = append(all, onQueue(l.dlq.Name, l.dlq.ARN, findActions(sendAction)))
	}
	return all
}

// operatorRights returns the rights of a person who works on the DLQ.
func (l *layout) operatorRights() []mq.Right {
	if l.dlq == nil {
		return nil
	}
	return []mq.Right{
		onQueue(l.main.Name, l.main.ARN, findActions(sendAction, "sqs:ListQueueTags", "sqs:TagQueue", "sqs:UntagQueue")), // for a replay, and for a pause
		onQueue(l.dlq.Name, l.dlq.ARN, readActions(sendAction)),                                                          // an import sends
		onQueue(dlq.StateName(l.dlq.Name), "", readActions(sendAction)),
	}
}

func onQueue(name, arn string, actions []string) mq.Right {
	return mq.Right{Resource: "queue", Name: name, ARN: arn, Operations: actions}
}
