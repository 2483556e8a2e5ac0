package amqp

import (
	"context"

	"github.com/redeliver/redeliver/deadletter"
)

// Waiting says how many messages wait on each level of a topic's policy, and lie on the
// way back: AMQP cannot list queues, so those of another policy are not found. When the
// first of them is due the broker does not tell.
func (c *Client) Waiting(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	p, err := c.Plan(ctx, topic)
	if err != nil {
		return nil, err
	}
	asking := &link{cfg: &c.cfg, name: "redeliver, counting what waits", reads: true}
	defer asking.close()
	ch, err := asking.channel(ctx)
	if err != nil {
		return nil, err
	}
	var all []deadletter.WaitingLevel
	for _, q := range p.Queues {
		if !q.Exists || q.Kind != string(delayQueue) && q.Kind != string(retryQueue) {
			continue
		}
		n, _, err := stat(ch, q.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, deadletter.WaitingLevel{Level: q.Level, Place: q.Name, Depth: int64(n), Exact: true})
	}
	return all, nil
}
