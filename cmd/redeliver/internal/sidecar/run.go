package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/middleware"
)

// Config configures the topics of a sidecar and their handler. Broker, Topics and Handler are required, and on Kafka
// also Group.
type Config struct {
	Broker brokerurl.URL
	// Topics are the topics or queues.
	Topics []string
	// Group is the consumer group or share group of Kafka. It is empty on other brokers.
	Group string
	// Instance is the name of a static member (Kafka). Empty for none.
	Instance string
	// KeyHeader is the header with a message's key (RabbitMQ), which OrderThroughRetries requires. Empty for none.
	KeyHeader string
	// SpringHeaders adds Spring's headers to dead letters (Kafka).
	SpringHeaders bool
	// SkipExisting lets a new group skip the records that its topics have (Kafka).
	SkipExisting bool
	Policy       redeliver.Policy
	Handler      Handler
	// Batch configures the batches of a Handler that is a Batcher. A Size of 0 means no batches.
	Batch redeliver.BatchConfig
	// InFlight is the maximum number of concurrent first deliveries per topic, RetriesInFlight the maximum number of
	// retries in addition to them.
	InFlight, RetriesInFlight int
	// MinInFlight lets both shrink together while messages fail, down to this number. 0 for not at all.
	MinInFlight int
	// Drain is how long running messages may take when ctx ends.
	Drain time.Duration
	// MaxCancel is how long a cancelled call of the handler may take to end. Default: 3 s; a command needs less.
	MaxCancel time.Duration
	// DLQ configures the DLQ.
	DLQ deadletter.Config
	// NoProvisioning disables the creation of topics and queues.
	NoProvisioning bool
	// Health receives the state of the handler and the subscriptions. Required.
	Health *Health
	// Filter acks messages that the handler does not get. It comes before Dedup.
	Filter Filter
	// Skipped is called for each message that Filter has acked, with the reason. Optional.
	Skipped func(origin, group, why string)
	// Dedup acks messages that the group has handled before, and keeps their ids for DedupTTL, by default 24 h.
	// Optional.
	Dedup    middleware.DedupStore
	DedupTTL time.Duration
	// Extensions let the handler extend its attempts. Optional.
	Extensions *Extensions
	Sink       redeliver.Sink
	// Log logs when the handler is not reached, with the reason, and when it is reached again. Optional.
	Log *slog.Logger
}

// Run passes the messages of c.Topics to c.Handler until ctx ends. It then waits until running messages are answered,
// for at most c.Drain. It returns an error if it cannot start.
func Run(ctx context.Context, c Config) error {
	c.Sink = c.Health.sink(c.Sink)
	r := &runner{Config: c, ending: ctx.Done()}
	switch {
	case c.Dedup == nil:
	case c.Batch.Size > 0:
		dedup, err := middleware.DedupBatch(middleware.DedupConfigOf[redeliver.Message]{Store: c.Dedup, TTL: c.DedupTTL})
		if err != nil {
			return err
		}
		r.Batch.Dedup = dedup
	default:
		dedup, err := middleware.DedupFor(middleware.DedupConfigOf[*Message]{Store: c.Dedup, TTL: c.DedupTTL})
		if err != nil {
			return err
		}
		r.dedup = dedup(r.callHandler)
	}
	if r.Batch.Size > 0 && len(c.Filter.Describe()) > 0 {
		r.Batch.Dedup = batchFilter{r, r.Batch.Dedup}
	}
	stop := context.AfterFunc(ctx, c.Health.end)
	defer stop()
	defer r.awaitCalls()
	switch c.Broker.Broker {
	case brokerurl.KafkaShare:
		return r.kafkaShare(ctx)
	case brokerurl.RabbitMQ:
		return r.rabbitmq(ctx)
	case brokerurl.SQS:
		return r.sqs(ctx)
	default:
		return r.kafka(ctx)
	}
}

type runner struct {
	Config

	ending <-chan struct{}                       // closed when no new messages are read
	calls  sync.WaitGroup                        // running calls of the handler
	dedup  func(context.Context, *Message) error // call, unless m was handled before; nil for no such check
}

// awaitCalls waits for cancelled calls of the handler. If the process ended before them, commands would keep running.
func (r *runner) awaitCalls() {
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.calls.Wait()
	}()
	timer := time.NewTimer(cmp.Or(r.MaxCancel, 3*time.Second))
	defer timer.Stop()
	select {
	case <-left:
	case <-timer.C:
	}
}

// The pauses between two tries to reach an absent handler, and the total time of the tries. While messages wait here,
// no more are read. Afterwards they are postponed, which does not count as an attempt either.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
	maxTries   = 30 * time.Second
)

// handleOne handles one message.
func (r *runner) handleOne(ctx context.Context, m *Message) error {
	if r.skips(ctx) {
		return nil
	}
	if r.dedup != nil {
		return r.dedup(ctx, m)
	}
	return r.callHandler(ctx, m)
}

func (r *runner) callHandler(ctx context.Context, m *Message) error {
	url, end := r.Extensions.begin(ctx, r.Policy.Timeout)
	defer end()
	m.Extend = url
	return r.callUntilReached(ctx, func() error { return r.Handler.Handle(ctx, m) })
}

// batchMessage is a message of an adapter's batch.
type batchMessage interface {
	Answer(err error) bool
}

// handleAll handles a batch. convert returns the message that the handler gets.
func handleAll[M batchMessage](ctx context.Context, r *runner, batch []M, convert func(M) *Message) error {
	all := make([]*Message, len(batch))
	for i, m := range batch {
		all[i] = convert(m)
	}
	return r.callBatcher(ctx, all, func(i int, err error) { batch[i].Answer(err) })
}

// callBatcher passes messages to a handler of batches.
func (r *runner) callBatcher(ctx context.Context, all []*Message, answer func(i int, err error)) error {
	b, ok := r.Handler.(Batcher)
	if !ok {
		return fmt.Errorf("%T does not handle batches", r.Handler)
	}
	url, end := r.Extensions.begin(ctx, r.Policy.Timeout)
	defer end()
	for _, m := range all {
		m.Extend = url
	}
	return r.callUntilReached(ctx, func() error { return b.HandleBatch(ctx, all, answer) })
}

// reached records whether the handler was reached (err is nil), and logs a change.
func (r *runner) reached(err *UnreachedError) {
	switch changed := r.Health.reached(err); {
	case !changed || r.Log == nil:
	case err == nil:
		r.Log.Info("handler reached again")
	default:
		r.Log.Warn("handler not reached; no attempts are counted", "error", redeliver.Redact(err.Error()))
	}
}

// callUntilReached calls a handler until it answers.
func (r *runner) callUntilReached(ctx context.Context, call func() error) error {
	r.calls.Add(1)
	defer r.calls.Done()
	until := time.Now().Add(maxTries)
	if end, ok := ctx.Deadline(); ok {
		// Stop before the attempt's timeout, which would count as an attempt.
		if half := time.Now().Add(time.Until(end) / 2); half.Before(until) {
			until = half
		}
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := call()
		gone, unreached := errors.AsType[*UnreachedError](err)
		if !unreached {
			if err == nil || ctx.Err() == nil { // otherwise it is unknown
				r.reached(nil)
			}
			return err
		}
		r.reached(gone)
		left := time.Until(until)
		if left <= 0 {
			return redeliver.Postpone(err)
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-r.ending:
			err = redeliver.Postpone(err)
		}
		timer.Stop()
		return err
	}
}
