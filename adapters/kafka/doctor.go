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
// lists levels that the policy does not use, with the command that deletes each. It joins no group,
// and writes and creates nothing. It returns an error if the cluster does not answer, or the topic
// itself does not exist.
func (c *client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	l, err := c.layout(topic, cmp.Or(how.Group, c.cfg.Group))
	if err != nil {
		return nil, err
	}
	return examinerOf(c).Examine(ctx, l, how)
}

func examinerOf(c *client) *diagnose.Examiner {
	return &diagnose.Examiner{Topics: c.topics, CheckInterval: reader.CheckInterval, Brokers: c.cfg.Brokers}
}
