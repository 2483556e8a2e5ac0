package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
)

// Defaults of [BatchConfig].
const (
	DefaultBatchSize    = 10
	DefaultBatchTimeout = 5 * time.Second
)

// NoWait is a [BatchConfig] Timeout: what is there is handled at once, without
// waiting for more. Batches are of what has gathered while others ran.
const NoWait time.Duration = -1

// BatchConfig says when a batch is run: as soon as its Size, its Bytes or its
// Timeout is reached, and never empty.
type BatchConfig struct {
	// Size is the maximum number of messages in a batch. A Size above the subscription's MaxInFlight is refused, because so
	// many messages are never in flight at once. Default 10.
	Size int
	// Bytes is the maximum size of all payloads in a batch, in bytes. A larger message is a batch of its own. Default: no
	// bound.
	Bytes int
	// Timeout is the maximum time that the first message of a batch waits for others. Default 5 s; [NoWait] for none.
	Timeout time.Duration
	// Concurrency is how many batches of one subscription run at once. To keep them all busy, the subscription needs a
	// MaxInFlight of (Concurrency + 1) x Size. Default 1.
	Concurrency int
}

// WithDefaults is the configuration with the default in every field that is zero.
func (c BatchConfig) WithDefaults() BatchConfig {
	if c.Size == 0 {
		c.Size = DefaultBatchSize
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultBatchTimeout
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	return c
}

// Validate returns all that is wrong with the configuration in one
// [redeliver.ConfigError].
func (c BatchConfig) Validate() error {
	var ps redeliver.Problems
	c.Check(&ps)
	return ps.Err()
}

// Check notes all that is wrong with the configuration.
func (c BatchConfig) Check(ps *redeliver.Problems) {
	for _, f := range []struct {
		field string
		value int
		zero  string
	}{{"Size", c.Size, "10"}, {"Bytes", c.Bytes, "no bound"}, {"Concurrency", c.Concurrency, "1"}} {
		if f.value < 0 {
			ps.Add("BatchConfig."+f.field, f.value, "must not be negative; 0 is the default, "+f.zero)
		}
	}
	if c.Timeout < 0 && c.Timeout != NoWait {
		ps.Add("BatchConfig.Timeout", c.Timeout, "must not be negative; 0 is the default, 5s, and NoWait runs what is there at once")
	}
}

// CheckSize notes that a batch can never be full where only so many messages may
// be in flight. Both have their defaults.
func (c BatchConfig) CheckSize(ps *redeliver.Problems, maxInFlight int) {
	if maxInFlight > 0 && c.Size > maxInFlight {
		ps.Add("BatchConfig.Size", c.Size, fmt.Sprintf(
			"must not be above the subscription's MaxInFlight, %d, or no batch is ever full; raise MaxInFlight or lower Size", maxInFlight))
	}
}

var (
	// ErrRetryAsked is the failure of a message of a batch whose function asked
	// for a retry and gave no reason.
	ErrRetryAsked = errors.New("the batch function asked for a retry")
	// ErrBatchOver is what a LateAnswer says of a message that was settled when
	// its batch had ended.
	ErrBatchOver = errors.New("settled after the end of its batch")
)
