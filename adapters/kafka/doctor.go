package kafka

import (
	"cmp"
	"context"

	"github.com/redeliver/redeliver/adapters/kafka/internal/diagnose"
	"github.com/redeliver/redeliver/adapters/kafka/internal/reader"
	"github.com/redeliver/redeliver/doctor"
)

// Doctor checks a group, by default the client's, and the topics on which messages of a topic wait. It checks that
// the topics exist, keep their messages for long enough, are read, and deliver what is due. It
// lists levels that an older policy left, and reports whether all members run one policy. It joins
// no group, and writes and creates nothing. It returns an error if the cluster does not answer, or
// the topic itself does not exist.
func (c *Client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	l, err := c.layout(topic, cmp.Or(how.Group, c.cfg.Group))
	if err != nil {
		return nil, err
	}
	return examinerOf(c).Examine(ctx, l, how)
}

func examinerOf(c *Client) *diagnose.Examiner {
	return &diagnose.Examiner{Topics: c.topics, CheckInterval: reader.CheckInterval}
}

// OldLevels lists the delay topics that an older policy has left beside the client's own. For each
// that must stay, it reports why. It changes nothing.
//
// A level is drained when nothing waits on it, and all members of the group report the client's
// policy. A group without members has none with another policy. Kafka does not know programs that
// publish with a delay and are not members: stop those that have an older policy.
func (c *Client) OldLevels(ctx context.Context, topic string) ([]doctor.OldLevel, error) {
	return c.checkOldLevels(ctx, topic, func(string) bool { return true })
}

// checkOldLevels is OldLevels for the wanted delay topics.
func (c *Client) checkOldLevels(ctx context.Context, topic string, wanted func(place string) bool) ([]doctor.OldLevel, error) {
	l, err := c.layout(topic, c.cfg.Group)
	if err != nil {
		return nil, err
	}
	return examinerOf(c).OldLevels(ctx, l, wanted)
}

// RemoveOldLevels deletes those of the named delay topics that are drained, see [Client.OldLevels].
// The others stay, and the result has the reason. Each topic is checked again immediately before it
// is deleted. With an error, the result has the topics that were handled before it. The user needs
// Delete on the topics. The group rebalances once for each.
func (c *Client) RemoveOldLevels(ctx context.Context, topic string, places ...string) (done []doctor.OldLevel, err error) {
	for _, place := range places {
		// Check only this one: levels that were just deleted may still be listed, and have no offsets.
		old, err := c.checkOldLevels(ctx, topic, func(name string) bool { return name == place })
		if err != nil {
			return done, err
		}
		if len(old) == 0 {
			done = append(done, doctor.OldLevel{Place: place, Messages: -1, KeepReason: "it is not a level of an older policy, or no longer exists"})
			continue
		}
		o := old[0]
		if o.KeepReason == "" {
			if err := c.admin.DeleteTopic(place); err != nil {
				return done, err
			}
			o.Removed = true
		}
		done = append(done, o)
	}
	return done, nil
}
