package kafka

import "time"

// SweepEvery makes the subscriptions of c give back settled records so often.
func SweepEvery(c *Client, d time.Duration) { c.sweepInterval = d }

// What tests of names need.
var (
	Base          = baseName
	EscapeGroup   = escapeGroup
	UnescapeGroup = unescapeGroup
)

const LongestBase = maxTopic - maxSuffix

// DelayTopic is the name of a delay topic; LevelOf reads its level back.
func DelayTopic(topic, group string, level time.Duration) string {
	return Names{}.delay(topic, group, level)
}

func LevelOf(topic, group, name string) (time.Duration, bool) {
	return Names{}.level(topic, group, name)
}

// Look has the readers of w look for levels of other policies now.
func Look(w *Wrapped) {
	for _, r := range w.readers {
		_, _ = r.checkTopics()
	}
}
