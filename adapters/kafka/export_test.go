package kafka

import (
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/mq"
)

// SweepEvery sets how often the subscriptions of c delete settled records. It also sets the interval of their checks.
func SweepEvery(c *mq.Client, d time.Duration) { c.Broker().(*client).sweepInterval = d }

// Names for tests.
var (
	Base              = kafkaname.Base
	EscapeGroupName   = kafkaname.EscapeGroup
	UnescapeGroupName = kafkaname.UnescapeGroup
)

const LongestBase = kafkaname.MaxTopic - kafkaname.MaxSuffix

// DelayTopicName returns the name of a delay topic. LevelOf reads its level.
func DelayTopicName(topic, group string, level time.Duration) string {
	return topology.Names{}.DelayTopic(topic, group, level)
}

func LevelOf(topic, group, name string) (time.Duration, bool) {
	return topology.Names{}.Level(topic, group, name)
}

// CheckTopics makes the readers of w look for levels of other policies now.
func CheckTopics(w *Wrapped) {
	for _, r := range w.readers {
		r.CheckTopics()
	}
}

// Sweep makes the readers of w look for topics that were created again now.
func Sweep(w *Wrapped) error {
	for _, r := range w.readers {
		if err := r.Sweep(); err != nil {
			return err
		}
	}
	return nil
}
