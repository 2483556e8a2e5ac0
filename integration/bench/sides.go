package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

// consumer is one side, ready to subscribe.
type consumer struct {
	sub         message.Subscriber
	middlewares []message.HandlerMiddleware
	settings    string
	provision   func() error                                // makes the topics or queues
	begin       func(h *handling, failed func(error)) error // consumes, for a side that is not a Watermill subscriber
	requests    func() int64                                // so far, where a row counts them
	close       func()
}

func (s spec) open(ctx context.Context, sink redeliver.Sink) (*consumer, error) {
	if s.Native != "" {
		return s.openNative()
	}
	switch s.System {
	case onRabbit:
		return s.openRabbit(ctx, sink)
	case onSQS:
		return s.openSQS(ctx, sink)
	case onNone, onKafka, onRocket: // on RocketMQ only a side in Java consumes
	}
	if s.Side == peer {
		return s.openPeer()
	}
	if s.Side == share {
		return s.openShare(ctx, sink)
	}
	cfg := s.config(sink)
	if s.Observed {
		if err := observeClient(&cfg); err != nil {
			return nil, err
		}
	}
	client, err := kafka.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := s.ours(client.Subscriber(), client.Close, fmt.Sprintf("defaults, MaxInFlight %d", s.InFlight))
	if s.Instance != "" {
		c.settings += ", static membership"
	}
	return c, nil
}

// ours is our side, with the settings of its broker.
func (s spec) ours(sub interface {
	message.Subscriber
	message.SubscribeInitializer
}, closeClient func(context.Context) error, settings string) *consumer {
	if s.Backoff != "" {
		settings += fmt.Sprintf(", %d retries of %s", retries, s.Backoff)
	}
	return &consumer{
		sub: sub, middlewares: []message.HandlerMiddleware{middleware.Retry()}, settings: settings,
		provision: func() error { return sub.SubscribeInitialize(s.Topic) },
		close:     func() { _ = closeClient(context.Background()) },
	}
}

// config is our side: the defaults, except for what a row tests. A nil sink is the default one, which logs.
func (s spec) config(sink redeliver.Sink) kafka.Config {
	cfg := kafka.Config{
		Brokers: s.Brokers, Group: s.Group, MaxInFlight: s.InFlight, InstanceID: s.Instance, Sink: sink, Policy: s.policy(),
	}
	return cfg
}

func (s spec) policy() redeliver.Policy {
	p := redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: retries, Order: s.Order}
	switch s.Backoff {
	case second:
		p.Backoff = redeliver.Fixed(time.Second)
	case short:
		p.Backoff = redeliver.Fixed(100 * time.Millisecond)
	case hour:
		p.Backoff = redeliver.Fixed(time.Hour)
	case minute:
		p.Backoff = redeliver.Fixed(time.Minute)
	case jitter:
		p.Backoff = redeliver.ExponentialBackoff{Base: time.Second, Max: time.Second}
	}
	return p
}

// openPeer is watermill-kafka with its own defaults. Its documentation and its benchmark set Offsets.Initial and
// nothing else.
func (s spec) openPeer() (*consumer, error) {
	logger := watermill.NopLogger{}
	cfg := wkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers: s.Brokers, Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg, ConsumerGroup: s.Group,
	}, logger)
	if err != nil {
		return nil, err
	}
	c := &consumer{sub: sub, settings: "watermill-kafka's defaults, Offsets.Initial oldest", close: func() { _ = sub.Close() }}
	if !s.Router {
		return c, nil
	}
	pub, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: s.Brokers, Marshaler: wkafka.DefaultMarshaler{}}, logger)
	if err != nil {
		return nil, err
	}
	poison, err := wmiddleware.PoisonQueue(pub, s.Topic+".poison")
	if err != nil {
		return nil, err
	}
	c.middlewares = []message.HandlerMiddleware{poison, peerRetry().Middleware}
	c.settings += "; Retry as in Watermill's own example inside PoisonQueue"
	c.close = func() {
		_ = sub.Close()
		_ = pub.Close()
	}
	return c, nil
}

// peerRetry has the values of Watermill's documentation and basic example.
func peerRetry() wmiddleware.Retry {
	return wmiddleware.Retry{MaxRetries: 3, InitialInterval: 100 * time.Millisecond, Logger: watermill.NopLogger{}}
}

var errDeclined = errors.New("card declined")

// doConsume handles messages until all are settled, or until a request to stop.
func doConsume(ctx context.Context, s spec, ready func()) (*outcome, error) {
	h, err := newHandling(s, ready)
	if err != nil {
		return nil, err
	}
	c, err := s.open(ctx, h.sink())
	if err != nil {
		return nil, err
	}
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	h.meter = newMeter(s.Messages)
	finished, err := c.start(s, h)
	if err != nil {
		return nil, err
	}
	select {
	case <-h.meter.done:
	case <-ctx.Done():
	case err := <-finished:
		return nil, errors.Join(errors.New("it ended unexpectedly"), err)
	}
	stopProfile()
	out := h.outcome()
	out.Settings = c.settings
	// The last ack was called a moment ago; it is not yet marked.
	<-time.After(100 * time.Millisecond)
	if c.requests != nil {
		out.Requests = c.requests()
	}
	c.close()
	return out, nil
}

// start begins to consume, through a Router or in a plain loop.
func (c *consumer) start(s spec, h *handling) (<-chan error, error) {
	finished := make(chan error, 1)
	if c.begin != nil {
		return finished, c.begin(h, func(err error) {
			select {
			case finished <- err:
			default: // the first will do
			}
		})
	}
	if !s.Router {
		messages, err := c.sub.Subscribe(context.Background(), s.Topic)
		if err != nil {
			return nil, err
		}
		go func() {
			for msg := range messages {
				h.meter.enter(h.spec.value(msg.Payload))
				msg.Ack()
				h.meter.settle()
			}
		}()
		return finished, nil
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	handler, err := h.handler()
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(c.middlewares...)
	router.AddConsumerHandler("bench", s.Topic, c.sub, handler)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { finished <- router.Run(ctx) }()
	inner := c.close
	c.close = func() {
		_ = router.Close()
		cancel()
		inner()
	}
	return finished, nil
}

// handling is the handler of a run, and our side's sink.
type handling struct {
	spec         spec
	meter        *meter
	ready        func()
	once         sync.Once
	late         *samples
	lag          *samples
	entries      *entryLog
	full         *fullBatchTimer // nil where batches are not timed
	keys         *keyCheck       // nil where the order of keys is not checked
	measureUntil atomic.Int64    // retries due later are not measured, unix nanoseconds; 0 for no end
	firsts       atomic.Int64    // messages that succeeded in their first attempt
	firstAt      atomic.Int64    // when the last of those did, unix nanoseconds
}

func newHandling(s spec, ready func()) (*handling, error) {
	h := &handling{spec: s, ready: ready, entries: openEntryLog(s.Entries)}
	if s.Batch.Timed {
		var err error
		if h.full, err = newFills(s.Messages); err != nil {
			return nil, err
		}
	}
	if s.Batch.Keys > 0 {
		h.keys = newKeyCheck(s.Batch.Keys)
	}
	if !s.watched() {
		return h, nil
	}
	var err, lerr error
	h.late, err = newSamples(4_000_000)
	h.lag, lerr = newSamples(1_000_000)
	return h, errors.Join(err, lerr)
}

func (h *handling) fails(id uint64, attempt int) bool {
	f := h.spec.Failing
	return f.Every > 0 && id%uint64(f.Every) == 0 && attempt <= f.Attempts
}

func (h *handling) handle(msg *message.Message) error {
	now := time.Now()
	value := h.spec.value(msg.Payload)
	h.meter.enter(value)
	var st redeliver.State
	if h.spec.watched() {
		var ok bool
		if st, ok = redeliver.FromContext(msg.Context()); !ok {
			return errNoState
		}
		h.entries.add(entryStarted, idOf(value), st.Attempts+1, now)
	}
	if h.spec.Wait > 0 && !h.drains(now) {
		time.Sleep(h.spec.Wait) //nolint:forbidigo // This is the handler's work.
	}
	if h.spec.watched() {
		if err := h.attempt(value, now, st.Attempts, st.Due); err != nil {
			return err
		}
		h.entries.add(entryEnded, idOf(value), 0, time.Now())
	}
	h.meter.settle()
	return nil
}

var errNoState = errors.New("the message has no redeliver state")

// watched reports whether the row looks at single attempts.
func (s spec) watched() bool { return s.Failing.Every > 0 || s.Entries != "" }

// drains reports whether only the backlog is left, which is handled at full speed. Messages that fall due shortly
// before that are not measured: they might run in the drain.
func (h *handling) drains(now time.Time) bool {
	if h.spec.Backlog == 0 {
		return false
	}
	slow, ran := int64(h.spec.Messages-h.spec.Backlog), h.meter.entries.count.Load()
	if ran > slow*19/20 {
		h.measureUntil.CompareAndSwap(0, now.UnixNano())
	}
	return ran > slow
}

// attempt is one run of the handler for a message with that many earlier failures and that due time.
func (h *handling) attempt(value []byte, now time.Time, attempts int, due time.Time) error {
	id := idOf(value)
	switch enough := h.measureUntil.Load(); {
	case id < uint64(h.spec.Warm):
	case attempts == 0:
		h.lag.add(now.Sub(writtenAt(value)))
	case enough == 0, due.UnixNano() < enough:
		// Messages that were due before that count, however late they come.
		h.late.add(now.Sub(due))
	}
	if h.fails(id, attempts+1) {
		return errDeclined
	}
	if attempts == 0 && h.firsts.Add(1) == h.spec.firstPass() {
		h.firstAt.Store(now.UnixNano())
	}
	return nil
}

// firstPass returns how many messages succeed in their first attempt.
func (s spec) firstPass() int64 {
	if s.Failing.Every == 0 {
		return int64(s.Messages)
	}
	return int64(s.Messages - (s.Messages+s.Failing.Every-1)/s.Failing.Every)
}

// sink returns nil, for the default sink, if the row looks at no single attempt and at no batch.
func (h *handling) sink() redeliver.Sink {
	if !h.spec.watched() && !h.spec.Batch.Timed {
		return nil
	}
	return h
}

// Wants implements [observe.FilteringSink]: the events that Event uses, as the default sink does.
func (h *handling) Wants(e redeliver.Event) bool {
	switch e.(type) {
	case redeliver.SubscriptionChanged, redeliver.DeadLettered, redeliver.RetryScheduled:
		return true
	default:
		return false
	}
}

// Event implements [redeliver.Sink].
func (h *handling) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.SubscriptionChanged:
		if e.Change == redeliver.ChangeAssigned || e.Change == redeliver.ChangeConsuming { // on Kafka, on RabbitMQ and SQS
			h.once.Do(h.ready)
		}
	case redeliver.DeadLettered:
		h.forwarded(e.State)
		if id, ok := idOfUUID(e.State.ID); ok {
			h.entries.add(entryEnded, id, 0, time.Now())
		}
		h.meter.settle()
	case redeliver.RetryScheduled:
		h.forwarded(e.State)
	}
}

func (h *handling) forwarded(st redeliver.State) {
	if h.entries == nil {
		return
	}
	if id, ok := idOfUUID(st.ID); ok {
		h.entries.add(entryForwarded, id, st.Attempts, time.Now())
	}
}

func (h *handling) outcome() *outcome {
	out := h.meter.outcome()
	if h.late != nil {
		out.Late, out.Lag = h.late.summary(), h.lag.summary()
		if at := h.firstAt.Load(); at > 0 {
			out.FirstRun = time.Unix(0, at).Sub(time.Unix(0, h.meter.first.Load())).Seconds()
		}
	}
	if h.keys != nil {
		out.Swapped = h.keys.swapped.Load()
	}
	if h.full != nil {
		out.Full, out.Lag = h.full.after.summary(), h.full.sinceWrite.summary()
	}
	return out
}

// doProvision makes the topics or queues of a subscription.
func doProvision(ctx context.Context, s spec) (*outcome, error) {
	c, err := s.open(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return &outcome{}, c.provision()
}
