package amqp

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/deadletter"
)

// Waiting returns how many messages wait on each level of a topic, and how many are on the way
// back. Without Config.ManagementURL it knows only the levels of Config.Policy, because AMQP cannot
// list queues. The broker does not report when the first message is due. Waiting does not check
// whether a subscription with that policy would be refused.
func (c *Client) Waiting(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	l, s, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	asking := link.New(c.cfg.link("redeliver, counting waiting messages", true))
	defer asking.Close()
	count := func(queue string) (n int, there bool, err error) {
		ch, err := asking.Channel(ctx) // a missing queue closes it
		if err != nil {
			return 0, false, err
		}
		defer ch.Close()
		n, _, err = link.Stat(ch, queue)
		if link.IsNotFound(err) {
			return 0, false, nil
		}
		return n, true, err
	}
	switch _, there, err := count(l.Queue); {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("amqp: queue %s does not exist", l.Queue)
	}
	var all []deadletter.WaitingLevel
	for _, q := range slices.Concat(l.Queues, s.OldLevels()) {
		if q.Kind != layout.DelayQueue && q.Kind != layout.RetryQueue {
			continue
		}
		n, there, err := count(q.Name)
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, deadletter.WaitingLevel{Level: q.Level, Place: q.Name, Depth: int64(n), Exact: true})
		}
	}
	slices.SortStableFunc(all, func(x, y deadletter.WaitingLevel) int {
		return cmp.Compare(cmp.Or(x.Level, math.MaxInt64), cmp.Or(y.Level, math.MaxInt64))
	})
	return all, nil
}
