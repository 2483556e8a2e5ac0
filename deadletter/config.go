package deadletter

import (
	"time"

	"github.com/redeliver/redeliver/internal/check"
)

// Config configures a subscription's DLQ. It is a part of an adapter's configuration.
type Config struct {
	// Retention is how long the broker keeps a dead letter. If an existing DLQ has another retention, the subscription
	// is refused. Default 0: a new DLQ keeps its messages (SQS: for 14 days, its maximum), and an existing one is not
	// changed.
	Retention time.Duration
	// Discard turns the DLQ off: none is created, and a message that would go there is acked and
	// lost. The sink gets a redeliver.Discarded event for each. Do not set Discard together with
	// Retention. Default: there is a DLQ.
	Discard bool
}

// Validate returns all problems of the configuration in one redeliver.ConfigError, or nil. Adapters call it with the retentions that
// their brokers allow; a maxRetention of 0 means no bound.
func (c Config) Validate(minRetention, maxRetention time.Duration) error {
	var ps check.Problems
	if c.Discard && c.Retention != 0 {
		ps.Add("DLQ.Retention", c.Retention, "must not be set where DLQ.Discard is: there is no DLQ")
	}
	if c.Retention != 0 {
		ps.CheckDuration("DLQ.Retention", c.Retention, minRetention, maxRetention)
	}
	return ps.Err()
}
