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

// NoWait is a BatchConfig.Timeout that makes a batch run without waiting for more messages. The batch has the messages that
// came while other batches ran.
const NoWait time.Duration = -1

// BatchConfig says when a batch runs: as soon as its Size, its Bytes or its Timeout is reached. No batch is empty.
type BatchConfig struct {
	// Size is the maximum number of messages in a batch. A Size above the subscription's MaxInFlight is refused: such a
	// batch could never be full. Default 10.
	Size int
	// Bytes is the maximum size of all messages in a batch, in bytes: keys, payloads and headers, each header with 64
	// bytes for its place in memory or in JSON. A larger message is a batch of its own. Default: no bound.
	Bytes int
	// Timeout is the maximum time that the first message of a batch waits for others. Default 5 s, at most 366 days;
	// [NoWait] means that it does not wait. It is refused if RabbitMQ or SQS would take the message back, or delete it, before
	// the handler has returned.
	Timeout time.Duration
	// Concurrency is the maximum number of batches of one subscription that run at once. To keep them all busy, the subscription needs a
	// MaxInFlight of (Concurrency + 1) x Size. Default 1.
	Concurrency int
	// Dedup acks messages that were handled before, so that the function does not get them. middleware.DedupBatch makes it.
	// Default: none.
	Dedup BatchDedup
}

// BatchDedup removes messages that were handled before from batches.
type BatchDedup interface {
	// Begin answers the messages of a batch that the function must not get, and returns the others, in their order. end is called
	// when the function has returned, or has panicked. With an error it returns no messages: those without an answer fail together.
	Begin(b *Batch, all []*Batched) (rest []*Batched, end func(), err error)
}

// WithDefaults returns the configuration with the default in every field that is zero.
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

// Validate returns all that is wrong with the configuration in one [redeliver.ConfigError], or nil.
func (c BatchConfig) Validate() error {
	var ps redeliver.Problems
	c.Check(&ps)
	return ps.Err()
}

// Check adds all that is wrong with the configuration to ps.
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
	if c.Timeout != NoWait && (c.Timeout < 0 || c.Timeout > redeliver.MaxWait) {
		ps.Add("BatchConfig.Timeout", c.Timeout, fmt.Sprintf(
			"must be from 1ns to %s; 0 is the default, 5s, and NoWait runs what is there at once", redeliver.MaxWait))
	}
}

// CheckSize adds a problem to ps if a subscription with maxInFlight can never fill a batch. Size and maxInFlight have their
// defaults.
func (c BatchConfig) CheckSize(ps *redeliver.Problems, maxInFlight int) {
	if maxInFlight > 0 && c.Size > maxInFlight {
		ps.Add("BatchConfig.Size", c.Size, fmt.Sprintf(
			"must not be above the subscription's MaxInFlight, %d, or no batch is ever full; raise MaxInFlight or lower Size", maxInFlight))
	}
}

// CheckWait adds a problem to ps if the broker takes the messages of a subscription back before a partial batch of them has
// run. c has its defaults.
func (c BatchConfig) CheckWait(ps *redeliver.Problems, all ...*Subscription) {
	for _, s := range all {
		times := time.Duration(1 + s.Policy.Immediate) // an immediate retry waits for a batch again
		run := max(0, s.Policy.Timeout)
		if s.MaxHeld > 0 && c.Timeout > 0 && c.Timeout <= redeliver.MaxWait && c.Timeout >= s.MaxHeld/times-run {
			ps.Add("BatchConfig.Timeout", c.Timeout, fmt.Sprintf(
				"must be so low that (1 + Immediate) x (it + the policy's Timeout), %d x (%s + %s), is below %s for %s: %s. Otherwise a partial batch never runs. Lower one of them",
				times, c.Timeout, run, s.MaxHeld, s.Origin, s.MaxHeldWhy))
			return
		}
	}
}

var (
	// ErrRetryRequested is the failure of a message for which a batch function asked for a retry without an error.
	ErrRetryRequested = errors.New("the batch function asked for a retry")
	// ErrBatchEnded is the error in the LateAnswer event of a message that was answered after the end of its batch.
	ErrBatchEnded = errors.New("settled after the end of its batch")
)
