package middleware

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// Defaults of [ResequenceConfig].
const (
	defaultResequenceWait   = 30 * time.Second
	defaultResequenceSettle = 100 * time.Millisecond
	defaultResequenceBuffer = 1000
)

// ResequenceConfig configures [Resequence].
type ResequenceConfig = ResequenceConfigOf[*message.Message]

// ResequenceConfigOf configures [ResequenceFor], for handlers of messages of type M.
type ResequenceConfigOf[M any] struct {
	// Sequence returns the stream of a message, and its number in the stream, which is one more than that of the message before. A
	// message for which ok is false is handled at once. Sequence must be safe for concurrent use. Required.
	Sequence func(M) (stream string, number uint64, ok bool)
	// First is the number of a stream's first message. Default 1, which also works for a producer that counts from 0.
	First uint64
	// Settle is how long the first message of a stream in this process waits for lower numbers when its own is above First:
	// another process may have handled them, or they may still come. Default 100 ms.
	Settle time.Duration
	// Wait is how long a stream waits for a number that does not come, or fails. Then it continues with the next number that has
	// come; skipped numbers run when they come. Wait should be below the policy's Timeout, which includes the wait. Default 30 s.
	Wait time.Duration
	// Buffer bounds the messages that wait, of all streams. If one more would have to wait, its stream continues at
	// once. Waiting messages are in flight, so the subscriber's MaxInFlight bounds them, too. Default 1,000.
	Buffer int
	// Skipped is called with the first and the last of the numbers of a stream for which Resequence no longer waits. It
	// must be quick, and must not call Resequence's handlers. Default: none.
	Skipped func(stream string, from, to uint64)
}

// Validate returns all that is wrong with the configuration in one [redeliver.ConfigError], or nil.
func (c ResequenceConfigOf[M]) Validate() error {
	var ps check.Problems
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

func (c ResequenceConfigOf[M]) withDefaults() ResequenceConfigOf[M] {
	c.First = cmp.Or(c.First, 1)
	c.Settle = cmp.Or(c.Settle, defaultResequenceSettle)
	c.Wait = cmp.Or(c.Wait, defaultResequenceWait)
	c.Buffer = cmp.Or(c.Buffer, defaultResequenceBuffer)
	return c
}

// Resequence returns a middleware that runs the messages of a stream in the order of their numbers, if a broker
// delivers them in another order: on several partitions, on a queue with many consumers, on a standard queue of SQS.
//
//	resequence, err := middleware.Resequence(middleware.ResequenceConfig{Sequence: version})
//	...
//	router.AddMiddleware(middleware.Retry(), resequence)
//
// Put it inside Retry. Then a message that fails keeps its place: those behind it wait until it has succeeded or goes to
// the DLQ, at most for Wait after its handler has returned or its context has ended. Outside Retry it puts only first
// attempts in order.
//
// It has limits:
//   - It knows only the messages of this process, so all messages of a stream must come to one process.
//   - A waiting message counts towards MaxInFlight. So the messages of a stream must not be further out of order than that, and
//     messages of other streams may have to wait, too.
//   - On Kafka messages of one key run one after another, so numbers that were written out of order under one key stay so.
//   - After Wait, or with a full Buffer, it skips numbers: it does not guarantee order, but it neither loses nor stops a message.
//   - A number below the stream's next one, of a copy or a skipped message, is handled when it comes.
//
// An invalid config is a [redeliver.ConfigError].
func Resequence(config ResequenceConfig) (message.HandlerMiddleware, error) {
	s, err := newSequences(config)
	if err != nil {
		return nil, err
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (produced []*message.Message, err error) {
			err = s.run(msg.Context(), msg, func() (failure, err error) {
				produced, err = h(msg)
				if err == nil && closed(msg.Nacked()) {
					return redeliver.ErrNacked, nil
				}
				return err, err
			})
			return produced, err
		}
	}, nil
}

// ResequenceFor is [Resequence] for handlers of a broker's own type, as the drop-ins take them:
//
//	resequence, err := middleware.ResequenceFor(middleware.ResequenceConfigOf[types.Message]{Sequence: version})
//	...
//	err = sqs.Consume(ctx, config, queues, resequence(charge))
func ResequenceFor[M any](config ResequenceConfigOf[M]) (func(next func(context.Context, M) error) func(context.Context, M) error, error) {
	s, err := newSequences(config)
	if err != nil {
		return nil, err
	}
	return func(next func(context.Context, M) error) func(context.Context, M) error {
		return func(ctx context.Context, m M) error {
			return s.run(ctx, m, func() (failure, err error) {
				err = next(ctx, m)
				if err == nil && isDeclined(ctx) {
					return redeliver.ErrNacked, nil
				}
				return err, err
			})
		}
	}, nil
}

// run waits until a message may run, and calls its handler. handle returns why the message will run again, if so, and
// the handler's error.
func (q *sequences[M]) run(ctx context.Context, m M, handle func() (failure, err error)) error {
	name, number, ok := q.config.Sequence(m)
	if !ok {
		_, err := handle()
		return err
	}
	s, err := q.enter(ctx, name, number)
	if err != nil {
		return err
	}
	// A handler that ignores the end of its context must not stop its stream.
	stop := context.AfterFunc(ctx, func() { q.leave(s, number, true, false) })
	var failure error = &redeliver.PanicError{Value: errNotReturned} // until it returns
	defer func() { q.leave(s, number, stop(), failure == nil || endsMessage(ctx, failure)) }()
	failure, err = handle()
	return err
}

// errNotReturned represents a panic, which is not recovered here, and runtime.Goexit.
var errNotReturned = errors.New("the handler did not return")

// endsMessage reports whether a failure sends the message to the DLQ, so that no other message need wait for it.
func endsMessage(ctx context.Context, err error) bool {
	d := engine.FromContext(ctx)
	if d == nil || d.Lost() {
		return false
	}
	return d.Sub().Decide(d.State(), err, time.Now()).Action == redeliver.ActionDeadLetter
}
