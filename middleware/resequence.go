package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Defaults of [ResequenceConfig].
const (
	DefaultResequenceWait   = 30 * time.Second
	DefaultResequenceSettle = 100 * time.Millisecond
	DefaultResequenceBuffer = 1000
)

// ResequenceConfig says what [Resequence] puts in order.
type ResequenceConfig struct {
	// Sequence names the stream that a message belongs to, and its number there,
	// which counts up by one. A message for which ok is false is handled at once.
	// It must be safe for concurrent use. Required.
	Sequence func(*message.Message) (stream string, number uint64, ok bool)
	// First is the number of a stream's first message. Default 1, which serves a
	// producer that counts from 0 too.
	First uint64
	// Settle is how long the first message that this process sees of a stream
	// waits for lower numbers when its own is above First: another process may
	// have handled those, or they are on their way. Default 100 ms.
	Settle time.Duration
	// Wait is for how long a stream stands still for a number that does not come,
	// or fails. Then it goes on with the next that is there; the skipped ones run
	// when they come. It should be below the policy's Timeout, which goes on while
	// a message waits. Default 30 s.
	Wait time.Duration
	// Buffer is how many messages wait, of all streams. When one more would, its
	// stream goes on at once. Default 1,000, and never more than what the
	// subscriber has in flight, since they are.
	Buffer int
	// Skipped is called with the numbers of a stream that are not waited for any longer:
	// from, to, both included. It must be quick, and must not call Resequence's
	// handlers. Default: nobody is.
	Skipped func(stream string, from, to uint64)
}

// Validate returns all that is wrong with the configuration in one
// [redeliver.ConfigError].
func (c ResequenceConfig) Validate() error {
	var ps redeliver.Problems
	if c.Sequence == nil {
		ps.Add("ResequenceConfig.Sequence", "nil", "it is required")
	}
	if c.Settle < 0 {
		ps.Add("ResequenceConfig.Settle", c.Settle, "must not be negative; 0 is the default, 100ms")
	}
	if c.Wait < 0 {
		ps.Add("ResequenceConfig.Wait", c.Wait, "must not be negative; 0 is the default, 30s")
	}
	if c.Buffer < 0 {
		ps.Add("ResequenceConfig.Buffer", c.Buffer, "must not be negative; 0 is the default, 1000")
	}
	return ps.Err()
}

func (c ResequenceConfig) withDefaults() ResequenceConfig {
	c.First = cmp.Or(c.First, 1)
	c.Settle = cmp.Or(c.Settle, DefaultResequenceSettle)
	c.Wait = cmp.Or(c.Wait, DefaultResequenceWait)
	c.Buffer = cmp.Or(c.Buffer, DefaultResequenceBuffer)
	return c
}

// Resequence returns a middleware that runs the messages of a stream in the order
// of their numbers, where a broker delivers them in another: on several
// partitions, on a queue with many consumers, on a standard queue of SQS.
//
//	router.AddMiddleware(middleware.Retry(), middleware.Resequence(middleware.ResequenceConfig{Sequence: version}))
//
// It stands inside Retry: a message that fails keeps its place, and those behind
// it wait until it has succeeded or goes to the DLQ, for Wait at most. Outside
// Retry only first attempts are put in order.
//
// What it can do is bounded. It knows this process alone: a stream must come to
// one process, or have one consumer. A message that waits has a slot in flight,
// so a stream that is further out of order than MaxInFlight is not put right, and
// other streams wait for slots too. On Kafka messages of one key run one after
// another: a stream whose numbers were written out of order under one key is not
// put right. After Wait, or with a full Buffer, numbers are skipped: order is what
// it tries, that no message is lost or stopped is what it promises. A number below
// the stream's place (a copy, or one that was skipped) is handled when it comes.
//
// Resequence panics with a [redeliver.ConfigError] when config is invalid.
func Resequence(config ResequenceConfig) message.HandlerMiddleware {
	if err := config.Validate(); err != nil {
		panic(err)
	}
	s := newSequences(config.withDefaults())
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			name, number, ok := s.config.Sequence(msg)
			if !ok {
				return h(msg)
			}
			ctx := msg.Context() // what stands inside may leave another
			seq, err := s.enter(ctx, name, number)
			if err != nil {
				return nil, err
			}
			var failure error = &redeliver.PanicError{Value: errNotReturned} // unless it returns
			defer func() { s.leave(seq, number, failure == nil || ends(ctx, failure)) }()
			produced, err := h(msg)
			failure = err
			return produced, err
		}
	}
}

// errNotReturned stands for the value of a handler's panic, which is not recovered here, and for runtime.Goexit.
var errNotReturned = errors.New("the handler did not return")

// ends reports whether a failure sends the message to the DLQ, so that nobody need
// wait for it.
func ends(ctx context.Context, err error) bool {
	d := engine.FromContext(ctx)
	if d == nil || d.Lost() {
		return false
	}
	return d.Sub().Decide(d.State(), err, time.Now()).Action == redeliver.DeadLetter
}
