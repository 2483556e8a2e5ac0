// Package adapters runs an adapter of your own on redeliver's engine: retries with backoff and a dead-letter queue for a
// broker or a queue that redeliver does not know.
//
// You write the three parts of package driver: a Source, a Codec and a Store. A [Consumer] runs them for one origin and one
// group, and calls a handler of the broker's own records or of batches of them, or delivers Watermill messages:
//
//	c, err := adapters.New(adapters.Config[*Row]{Origin: "orders", Group: "billing", Codec: codec, Store: store, Handler: charge})
//	...
//	err = c.Run(ctx, source) // until ctx ends; one call for each partition or queue
//
// docs/how-to/write-an-adapter.md explains it with examples/adapter, a queue in a table of a database.
//
// An adapter gets retries, levels and hops, the DLQ, batches, Policy.Outage, DeadLetterRate and Rate, throttling, timeouts,
// expiry, pauses of the group, spans of a tracer, and all events. An adapter that also implements package deadletter/driver gets
// package deadletter. It does not get OrderBlocking or OrderThroughRetries, or crash counts.
//
// Experimental: until version 1.0 a minor version may change this package. The changelog says so.
package adapters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

const defaultMaxBytes = 64 << 20

// Config configures a [Consumer]. Origin, Group, Codec and Store are required.
type Config[R any] struct {
	// Origin is the topic or queue whose messages are handled. Required.
	Origin string
	// Group is the consumer group. On a broker without groups it is the name of the queue. Required.
	Group string
	// Codec returns the parts of a record. The Consumer completes the states of first deliveries: Origin, Group, the
	// expiry in redeliver.HeaderExpires, and, if the producer gave no id, the ID origin/partition/offset@timestamp. Without
	// a timestamp it is derived:origin/partition/offset, which middleware.Dedup does not accept. A producer's id of that
	// form gets the prefix given:, and an id of more than 512 bytes is hashed. Required.
	Codec driver.Codec[R]
	// Store writes messages to where they wait and to the DLQ. Required.
	Store driver.Store[R]
	// Handler handles a record; nil means success. Many goroutines call it at once. One of Handler, BatchHandler and ToWatermill is
	// required.
	Handler func(ctx context.Context, record R) error
	// ToWatermill makes Watermill messages for a Router with middleware.Retry, which receives them from [Consumer.Messages]. Set it
	// instead of Handler. It returns a new message, as first published, which shares no bytes with the record. The handler's context
	// has the values of the message's. An error or a panic sends the record to the DLQ, undecodable.
	ToWatermill func(m *driver.Message[R]) (*message.Message, error)
	// BatchHandler handles many records at once, as Batch says. Set it instead of Handler. Each message has its own answer and its
	// own attempts; docs/reference/batching.md says which answer counts. Default: none.
	BatchHandler func(ctx context.Context, b *mq.Batch[R]) error
	// Batch says when a batch runs. It needs a BatchHandler.
	Batch redeliver.BatchConfig
	// PauseMark reads the mark by which an operator has paused the group, see [NewPauseMark]; nil means that there is none. It is
	// called before the first message, and then every 10 s. An error changes nothing and is reported (ChangeCommandsNotRead).
	// While there is a mark, nothing begins, and messages that wait for their handler are returned to the source. Default: the
	// group cannot be paused.
	PauseMark func(ctx context.Context) (*redeliver.PauseMark, error)
	// Tracer puts spans around handlers, see observe/otel. Default: none.
	Tracer observe.Tracer
	// Policy decides about failures. OrderThroughRetries and OrderBlocking are refused. The source sets driver.Message.Key for OrderFirstAttempts only.
	// Default: the zero Policy, three retries after 1, 2 and 4 s plus jitter.
	Policy redeliver.Policy
	// MaxInFlight bounds the first deliveries that run at once. Default 100.
	MaxInFlight int
	// MaxRetriesInFlight bounds how many retries run at once in addition. Retries have slots of their
	// own, so that neither starves the other. Default MaxInFlight.
	MaxRetriesInFlight int
	// MinInFlight lets the number of messages in flight shrink while messages fail. After every second
	// in which at least half of the messages failed, a limit for first deliveries and retries together
	// is halved, down to MinInFlight. It grows back when messages succeed. Failures that are the
	// message's own fault (permanent, rejected, undecodable) do not count, but postponed messages do.
	// At most MaxInFlight. Default 0: nothing shrinks.
	MinInFlight int
	// MaxBytes bounds the total size (driver.Message.Size) of a Run's messages in memory: above it the source should
	// read no more. Default 64 MiB.
	MaxBytes int
	// NackDelay is how long a message waits after a nack without an error, for example because the
	// publisher of a Router failed. The nack counts as an attempt. Default: the policy's delay for an
	// error.
	NackDelay time.Duration
	// DrainTimeout bounds how long handlers have to finish when the subscriber closes. After that
	// their contexts are cancelled, and their messages come back. The same holds when a Run ends.
	// Default 10 s.
	DrainTimeout time.Duration
	// SendTimeout bounds one try to write a message. Default 30 s.
	SendTimeout time.Duration
	// Sink receives the events. Default: NewSlogSink.
	Sink redeliver.Sink
}

func (c Config[R]) withDefaults() Config[R] {
	c.common().SetDefaults()
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	return c
}

// common returns the fields that other adapters have, too.
func (c *Config[R]) common() *rules.Common {
	return &rules.Common{
		Policy: &c.Policy, MaxInFlight: &c.MaxInFlight, MaxRetriesInFlight: &c.MaxRetriesInFlight, MinInFlight: &c.MinInFlight,
		NackDelay: &c.NackDelay, DrainTimeout: &c.DrainTimeout, SendTimeout: &c.SendTimeout, Sink: &c.Sink,
	}
}

// validate returns all problems at once. c must have its defaults.
func (c *Config[R]) validate() error {
	var ps check.Problems
	if c.Origin == "" {
		ps.Add("Origin", `""`, "it is required")
	}
	rules.RequireGroup(&ps, "Group", c.Group)
	rules.Require(&ps, "Codec", c.Codec != nil)
	rules.Require(&ps, "Store", c.Store != nil)
	rules.Require(&ps, "Handler", c.Handler != nil || c.BatchHandler != nil || c.ToWatermill != nil)
	if c.ToWatermill != nil && (c.Handler != nil || c.BatchHandler != nil) {
		ps.Add("ToWatermill", "set", "must not be set together with Handler or BatchHandler")
	}
	if c.BatchHandler != nil {
		if c.Handler != nil {
			ps.Add("BatchHandler", "set", "must not be set together with Handler")
		}
		rules.Batch(&ps, c.Batch, c.MaxInFlight)
	} else if b := c.Batch; b.Size != 0 || b.Bytes != 0 || b.Timeout != 0 || b.Concurrency != 0 || b.Dedup != nil {
		ps.Add("Batch", "set", "must not be set without a BatchHandler")
	}
	c.common().Check(&ps, rules.Limits{Orders: []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderNone}})
	ps.CheckCount("MaxBytes", c.MaxBytes, 1, 0)
	return ps.Err()
}

// Consumer handles the messages of one origin for one group. It is safe for concurrent use.
type Consumer[R any] struct {
	sub     *engine.Subscription
	engine  *engine.Engine[R]
	codec   codec[R]
	options engine.LaneOptions[R]
	router  *binding.Handler[R] // nil with a handler of records
	jitter  time.Duration       // the largest that the policy's backoff adds to a delay
	readers *engine.Readers

	pause   *engine.PausePoller // nil if the group cannot be paused
	newOnly atomic.Bool         // the last mark lets retries continue

	mu         sync.Mutex // also held during an event, so that events are in order
	lanes      map[driver.Lane[R]]bool
	unwatch    func() // removes the consumer from its sink; nil before the first Run
	endPolling func() // ends looking for pauses; nil before the first Run
}

// New checks the configuration and returns a Consumer, without I/O. All problems are in one redeliver.ConfigError.
func New[R any](cfg Config[R]) (*Consumer[R], error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("adapters: %w", err)
	}
	c := &Consumer[R]{codec: codec[R]{cfg.Codec, cfg.Origin, cfg.Group}, lanes: make(map[driver.Lane[R]]bool),
		readers: engine.NewReaders(errors.New("adapters: the consumer is closed"))}
	c.sub = &engine.Subscription{
		Origin: cfg.Origin, Group: cfg.Group, Policy: cfg.Policy.WithDefaults(), Sink: cfg.Sink, SendTimeout: cfg.SendTimeout, NackDelay: cfg.NackDelay,
		MaxInFlight: cfg.MaxInFlight, MaxRetriesInFlight: cfg.MaxRetriesInFlight, MinInFlight: cfg.MinInFlight, Tracer: cfg.Tracer,
	}
	_, c.jitter, _ = c.sub.Policy.Delays()
	c.options = engine.LaneOptions[R]{MaxAhead: cfg.MaxInFlight + cfg.MaxRetriesInFlight, MaxBytes: cfg.MaxBytes, DrainTimeout: cfg.DrainTimeout}
	if read := cfg.PauseMark; read != nil {
		c.pause = &engine.PausePoller{Sub: c.sub, Mark: func(ctx context.Context) (*redeliver.PauseMark, error) {
			mark, err := read(ctx)
			if err == nil {
				c.newOnly.Store(mark != nil && mark.NewOnly)
			}
			return mark, err
		}}
	}
	opt := engine.Options[R]{Sub: c.sub, Codec: c.codec, Store: cfg.Store, Handle: cfg.Handler}
	switch handle := cfg.BatchHandler; {
	case handle != nil:
		opt.BatchConfig = cfg.Batch.WithDefaults()
		opt.Batch = func(b *engine.Batch, all []*engine.BatchMember[R]) error { return handle(b, newBatch(b, all)) }
	case cfg.ToWatermill != nil:
		c.router = binding.New(cfg.ToWatermill)
		opt.Handler = c.router
	}
	c.engine = engine.New(opt)
	return c, nil
}

func newBatch[R any](b *engine.Batch, all []*engine.BatchMember[R]) *mq.Batch[R] {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (R, context.Context, mq.Answerer) {
		return all[i].Record, all[i].Context(), all[i]
	})
}

// NewPauseMark returns a mark that pauses a group, with the name of this user and host, or that of the command's or the
// console's user in ctx. An adapter keeps its text, see its String method, where each process of the group can read it, and
// Config.PauseMark reads it with redeliver.ParsePauseMark. With newOnly retries that fall due continue.
func NewPauseMark(ctx context.Context, reason string, newOnly bool) redeliver.PauseMark {
	return engine.NewPauseMark(ctx, reason, newOnly)
}

// Messages returns the channel for a Watermill subscriber. It is nil without Config.ToWatermill. Close closes it: a
// subscriber calls Close after Run, because a Router waits for the end of the channel. A message is done when it is
// acked. A nacked message has failed an attempt.
func (c *Consumer[R]) Messages() <-chan *message.Message {
	if c.router == nil {
		return nil
	}
	return c.router.Messages()
}

// Run reads a source until ctx ends, Close is called, or the source is lost or closes its channel. Then it waits for
// messages in flight, up to Config.DrainTimeout. Run a source once; several sources may run at once, and share
// handlers. The handlers' contexts have the values of ctx. The error is nil unless the Consumer was closed before.
func (c *Consumer[R]) Run(ctx context.Context, source driver.Source[R]) error {
	ended := make(chan struct{})
	err := c.readers.Begin(ctx, func(context.Context) (func(context.Context), error) {
		return func(ctx context.Context) {
			defer close(ended)
			c.runLane(ctx, source)
		}, nil
	})
	if err == nil {
		<-ended
	}
	return err
}

func (c *Consumer[R]) runLane(ctx context.Context, source driver.Source[R]) {
	var lane driver.Lane[R]
	c.engine.RunLane(ctx, context.WithoutCancel(ctx), source, c.options, func(l driver.Lane[R]) {
		lane = l
		c.begin(ctx, l)
		if s, ok := source.(driver.Starter[R]); ok {
			s.Start(l)
		}
	})
	c.end(lane)
}

// begin adds a source that is read, before its first message. It reports the first one, and begins to look for pauses.
func (c *Consumer[R]) begin(ctx context.Context, l driver.Lane[R]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unwatch == nil {
		c.unwatch = c.sub.RegisterLoad()
	}
	c.lanes[l] = true
	if len(c.lanes) > 1 {
		return
	}
	c.sub.EmitChange(redeliver.ChangeConsuming, "", nil)
	if c.pause == nil || c.endPolling != nil {
		return
	}
	c.pause.Poll(ctx)
	pollCtx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until Close: other sources may outlive this one
	var polling sync.WaitGroup
	polling.Go(func() { c.pause.Run(pollCtx, c.returnUnrun) })
	c.endPolling = func() { cancel(); polling.Wait() }
}

// returnUnrun returns the messages that a pause keeps from running, so that their leases need no renewal.
func (c *Consumer[R]) returnUnrun() {
	var waits func(*driver.Message[R]) bool
	if c.newOnly.Load() {
		waits = func(m *driver.Message[R]) bool { return !m.Retry }
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.lanes {
		l.Post(func() { l.ReturnUnrun(waits) })
	}
}

func (c *Consumer[R]) end(l driver.Lane[R]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.lanes, l)
}

// Arrive sets the fields of a message that the Store wrote to a Level, from redeliver's headers on it: State, Retry,
// Until and Step (Hop or Publish). Source.Parse calls it, with Place set, and never for a message of the origin, where
// anyone can write such headers.
//
// at has the Ladder, delayqueue.NewLadder(policy), the Level from which the message was read, and the time when it was
// Written there. For a broker that can hold a message until any time, they are zero. Arrive sets Group, Origin, Jitter
// and Now.
func (c *Consumer[R]) Arrive(m *driver.Message[R], at delayqueue.Arrival, headers []driver.Header) {
	at.Group, at.Origin, at.Jitter, at.Now = c.sub.Group, c.sub.Origin, c.jitter, time.Now()
	if at.Written.IsZero() {
		at.Written = at.Now
	}
	stay := delayqueue.Arrive(&at, headers, func() string { return c.idOf(m) })
	_, _, stay.State.Expires = c.codec.Age(m)
	if len(stay.Findings) > 0 {
		c.sub.Emit(redeliver.HeadersIgnored{Topic: m.Place, ID: stay.State.ID, Findings: stay.Findings})
	}
	c.sub.CheckPolicyOf(stay.State)
	m.State, m.Retry, m.Until = stay.State, true, stay.Until
	switch {
	case stay.Hops:
		m.Step = driver.StepHop
	case stay.Publish:
		m.Step = driver.StepPublish
	}
}

// ReportForeignHeaders reports the headers of a message of the origin that have redeliver's names, for example because a
// service has copied them. They are not believed, except redeliver.HeaderExpires, which is reported if it is no time.
// Source.Parse may call it.
func (c *Consumer[R]) ReportForeignHeaders(m *driver.Message[R], headers iter.Seq2[string, string]) {
	var found []redeliver.Finding
	for name, value := range headers {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, name, value, "on a topic or queue that redeliver does not write; it is not believed")
		}
	}
	if found != nil {
		c.sub.Emit(redeliver.HeadersIgnored{Topic: c.sub.Origin, ID: c.idOf(m), Findings: found})
	}
}

// idOf returns the id that a message has without a state.
func (c *Consumer[R]) idOf(m *driver.Message[R]) string {
	var own redeliver.State
	c.codec.State(m, &own)
	return own.ID
}

// Close ends all Runs and waits until they have returned. If ctx ends meanwhile, Close returns ctx's error and continues in
// the background; nothing is lost in either case. A second Close does nothing more.
func (c *Consumer[R]) Close(ctx context.Context) error {
	shut := func(r *engine.Readers) {
		if !r.Close() {
			return
		}
		c.engine.Close()
		if c.endPolling != nil { // no Run is left that could change it
			c.endPolling()
		}
		if c.unwatch != nil {
			c.unwatch()
		}
	}
	if err := engine.CloseAll(ctx, []*engine.Readers{c.readers}, shut, func() {}); err != nil {
		return fmt.Errorf("adapters: closing: %w", err)
	}
	return nil
}
