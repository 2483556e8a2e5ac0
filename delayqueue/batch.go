package delayqueue

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
	// Size is the most messages of a batch. It must not be above the MaxInFlight
	// of the subscription, which could never have so many at once: that is
	// refused. Default 10.
	Size int
	// Bytes bounds the payloads of a batch, in all. A message that alone has more
	// is a batch of its own. Default: no bound.
	Bytes int
	// Timeout is the longest that the first message of a batch waits for others
	// before its batch may run. Default 5 s; [NoWait] for none.
	Timeout time.Duration
	// Concurrency is how many batches of one subscription run at once. To keep
	// that many busy the subscription needs a MaxInFlight of (Concurrency + 1) x
	// Size. Default 1.
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

// BatchCall calls a batch function for messages, at least one, in the order in
// which they came. The slice is not the function's. b is the batch and ctx the
// context of the call: see [Batch].
type BatchCall func(b *Batch, all []*Batched) error
