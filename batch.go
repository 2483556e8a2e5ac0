package redeliver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Defaults of [BatchConfig].
const (
	DefaultBatchSize    = 10
	DefaultBatchTimeout = 5 * time.Second
)

// NoWait is a BatchConfig.Timeout that makes a batch run without waiting for more messages. The batch has the messages that
// came while other batches ran.
const NoWait time.Duration = -1

// BatchConfig says when a batch runs: as soon as its Size, its Bytes or its Timeout is reached. No batch is empty. middleware.Batch
// and every adapter's ConsumeBatch have it.
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
	// Concurrency is the maximum number of batches of one subscription that run at once. To keep them all busy, the subscription
	// needs a MaxInFlight of (Concurrency + 1) x Size. Default 1.
	Concurrency int
	// Dedup acks messages that were handled before, so that the function does not get them. middleware.DedupBatch makes it.
	// Default: none.
	Dedup BatchDedup
}

// BatchDedup removes messages that were handled before from batches. Many goroutines call it.
type BatchDedup interface {
	// Begin answers the messages of a batch that the function must not get, and returns the others, in their order. ctx is the
	// context of the batch. end, which may be nil, is called when the function has
	// returned, or has panicked. With an error it returns no messages:
	// those without an answer fail together.
	Begin(ctx context.Context, all []BatchedMessage) (rest []BatchedMessage, end func(), err error)
}

// BatchedMessage is a message of a batch, as a [BatchDedup] sees it. The engine implements it.
type BatchedMessage interface {
	// Message returns the message. It is empty for a message that no subscriber of redeliver delivered.
	Message() Message
	// Answer answers as a handler of single messages does with the error that it returns. It reports whether the answer counts.
	Answer(err error) bool
	// OwnAnswer returns the message's answer. ok is false if it has none yet.
	OwnAnswer() (ok bool, err error)
	// OnEnd makes f the function that is called, once, before the source gets the message's answer. handled reports whether the
	// batch function has handled the message. It is false if its answer is ignored because an earlier message of its key failed.
	// Begin calls it before the message has an answer. Several goroutines may call the functions of a batch at once.
	OnEnd(f func(handled bool))
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

// Validate returns all that is wrong with the configuration in one [ConfigError], or nil.
func (c BatchConfig) Validate() error {
	var ps problems
	for _, f := range []struct {
		field string
		value int
		zero  string
	}{{"Size", c.Size, "10"}, {"Bytes", c.Bytes, "no bound"}, {"Concurrency", c.Concurrency, "1"}} {
		if f.value < 0 {
			ps.Add("BatchConfig."+f.field, f.value, "must not be negative; 0 is the default, "+f.zero)
		}
	}
	if c.Timeout != NoWait && (c.Timeout < 0 || c.Timeout > MaxWait) {
		ps.Add("BatchConfig.Timeout", c.Timeout, fmt.Sprintf(
			"must be from 1ns to %s; 0 is the default, 5s, and NoWait runs what is there at once", MaxWait))
	}
	return ps.Err()
}

var (
	// ErrRetryRequested is the failure of a message for which a batch function asked for a retry without an error.
	ErrRetryRequested = errors.New("the batch function asked for a retry")
	// ErrBatchEnded is the error in the LateAnswer event of a message that was answered after the end of its batch.
	ErrBatchEnded = errors.New("settled after the end of its batch")
)
