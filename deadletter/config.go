package deadletter

import (
	"time"

	"github.com/redeliver/redeliver"
)

// Config says how a subscription's DLQ is made. It is a part of an adapter's configuration.
type Config struct {
	// Retention is how long the broker keeps a dead letter. A DLQ that is there already must
	// have it, or the subscription is refused. Default 0: a DLQ that is made keeps its
	// messages (SQS: for 14 days, the longest it can), and one that is there stays as it is.
	Retention time.Duration
	// Discard is for those who want no DLQ: none is made, and a message that would go there is
	// acked. The sink hears of each, as redeliver.Discarded. It is lost then. Must not be set
	// with what is about a DLQ. Default: there is a DLQ.
	Discard bool
}

// Check adds what is wrong with it. The longest retention is 0 where there is no bound.
func (c Config) Check(ps *redeliver.Problems, shortest, longest time.Duration) {
	if c.Discard && c.Retention != 0 {
		ps.Add("DLQ.Retention", c.Retention, "must not be set where DLQ.Discard is: there is no DLQ")
	}
	if c.Retention != 0 {
		ps.Duration("DLQ.Retention", c.Retention, shortest, longest)
	}
}
