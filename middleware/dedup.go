package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Defaults of [DedupConfig].
const (
	defaultDedupTTL          = 24 * time.Hour
	defaultDedupStoreTimeout = 5 * time.Second
)

// ErrDerivedID is the reason why a message is not deduplicated: another message may have its id, which was derived from its
// content, or on Kafka from the offset of a record without a timestamp.
var ErrDerivedID = errors.New("dedup: the message has no id of its own; have its publisher set one, or set DedupConfig.Derived where equal messages are duplicates")

// ErrProduced is the reason why a message is not marked: its handler has produced other messages, which a Router
// publishes only after all middlewares. If that fails, the message must run again.
var ErrProduced = errors.New("dedup: what the handler produced is published after Dedup; put PublishInside inside Dedup")

// DedupConfig configures [Dedup].
type DedupConfig = DedupConfigOf[*message.Message]

// DedupConfigOf configures [DedupFor], for handlers of messages of type M.
type DedupConfigOf[M any] struct {
	// Store keeps the ids of handled messages. Default: a [DedupMemory] of 100,000 ids, which only this process uses.
	Store DedupStore
	// TTL is how long an id is kept. Default 24 h.
	TTL time.Duration
	// StoreTimeout bounds one call of the store. Default 5 s.
	StoreTimeout time.Duration
	// ID returns the id of a message, or an empty one for a message that is not deduplicated. It must be safe for concurrent
	// use. Default: redeliver's id, which is the message's own if its publisher set one.
	ID func(M) string
	// Derived accepts ids that were derived from a message's content, so that messages with equal content are duplicates, and
	// from an offset without a timestamp, so that a topic that is created again loses messages.
	// Default false: a message with such an id is handled each time it comes, and the sink gets one SubscriptionChanged.
	Derived bool
	// Skipped is called for each duplicate. It must be quick. Default: none.
	Skipped func(M)
}

func (c DedupConfigOf[M]) withDefaults() DedupConfigOf[M] {
	if c.Store == nil {
		c.Store, _ = NewDedupMemory(0)
	}
	c.TTL = cmp.Or(c.TTL, defaultDedupTTL)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, defaultDedupStoreTimeout)
	return c
}

// Validate returns all that is wrong with the configuration in one [redeliver.ConfigError], or nil.
func (c DedupConfigOf[M]) Validate() error {
	var ps check.Problems
	if c.TTL < 0 {
		ps.Add("DedupConfig.TTL", c.TTL, "must not be negative; 0 is the default, 24h")
	}
	if c.StoreTimeout < 0 {
		ps.Add("DedupConfig.StoreTimeout", c.StoreTimeout, "must not be negative; 0 is the default, 5s")
	}
	return ps.Err()
}

// DedupStore keeps marks of handled messages. It must be safe for concurrent use. A key, which may have any bytes, identifies a message,
// its origin and the group that handled it.
type DedupStore interface {
	// Seen reports whether a key is marked and its ttl has not passed.
	Seen(ctx context.Context, key string) (bool, error)
	// Mark marks a key for ttl.
	Mark(ctx context.Context, key string, ttl time.Duration) error
}

// Dedup returns a middleware that acks a message without running its handler if this group has already handled the
// message. Put it inside Retry, and outside of PublishInside and Batch. [DedupBatch] is for batches:
//
//	dedup, err := middleware.Dedup(middleware.DedupConfig{Store: store})
//	...
//	router.AddMiddleware(middleware.Retry(), dedup)
//
// An id is marked when the handler has succeeded, and not before, so that a failed message can be retried and a dead letter replayed.
// Copies that come to one process at the same time run one after another.
//
// Dedup makes duplicates rare, but does not make handling exactly-once:
//   - A message runs again when its process dies between the end of the handler and the mark. Only the handler's own transaction
//     prevents that.
//   - Copies at the same time in two processes may both run.
//   - A copy that comes after the TTL, or after more ids than the store holds, runs again. Each process has its own DedupMemory.
//   - Duplicates are recognised by their ids. On Kafka the id of a message without a Watermill UUID is its offset and timestamp,
//     so a message that its producer wrote twice is no duplicate.
//   - The answer of a handler that exceeded its Timeout is ignored, but its mark counts: the retry is a duplicate then.
//
// While the store does not answer, messages are postponed: no attempt is counted. When the store refuses a mark, the
// message is acked nevertheless, because it was handled. The sink gets a SubscriptionChanged when the store fails in one of
// these ways, and when it works again. An invalid config is a [redeliver.ConfigError].
func Dedup(config DedupConfig) (message.HandlerMiddleware, error) {
	d, err := newDeduplicator(config)
	if err != nil {
		return nil, err
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (produced []*message.Message, err error) {
			err = d.handle(msg.Context(), msg.UUID, msg, func() (unmarked, err error) {
				produced, err = h(msg)
				switch {
				case closed(msg.Nacked()):
					unmarked = redeliver.ErrNacked
				case len(produced) > 0:
					unmarked = ErrProduced
				}
				return unmarked, err
			})
			return produced, err
		}
	}, nil
}

// DedupFor is [Dedup] for handlers of a broker's own type, as the drop-ins take them:
//
//	dedup, err := middleware.DedupFor(middleware.DedupConfigOf[*sarama.ConsumerMessage]{Store: store})
//	...
//	err = kafka.Consume(ctx, client, config, topics, dedup(charge))
//
// A message whose handler is called with another context than a drop-in's is not deduplicated, unless ID is set.
func DedupFor[M any](config DedupConfigOf[M]) (func(next func(context.Context, M) error) func(context.Context, M) error, error) {
	d, err := newDeduplicator(config)
	if err != nil {
		return nil, err
	}
	return func(next func(context.Context, M) error) func(context.Context, M) error {
		return func(ctx context.Context, m M) error {
			return d.handle(ctx, "", m, func() (unmarked, err error) {
				err = next(ctx, m)
				if isDeclined(ctx) {
					unmarked = redeliver.ErrNacked
				}
				return unmarked, err
			})
		}
	}, nil
}

// isDeclined reports whether the handler has nacked or rejected its message by the message's own methods.
func isDeclined(ctx context.Context) bool {
	d := engine.FromContext(ctx)
	return d != nil && d.Declined()
}

type deduplicator[M any] struct {
	DedupConfigOf[M]

	local                  bool // the store is in memory
	seenOutage, markOutage storeOutage
	derivedReported        sync.Map // by subscription
	producedReported       sync.Map

	mu      sync.Mutex
	running map[string]*dedupRun
}

// dedupRun is a message whose handler runs.
type dedupRun struct {
	ctx   context.Context
	ended chan struct{} // nil until another copy waits
}

func newDeduplicator[M any](config DedupConfigOf[M]) (*deduplicator[M], error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	d := &deduplicator[M]{DedupConfigOf: config.withDefaults(), running: make(map[string]*dedupRun)}
	_, d.local = d.Store.(*DedupMemory)
	return d, nil
}

// handle runs the handler of a message that is no duplicate. id is its id outside of a subscription. run returns, in
// addition to the handler's error, why a message that was handled must not be marked.
func (d *deduplicator[M]) handle(ctx context.Context, id string, m M, run func() (unmarked, err error)) error {
	delivery := engine.FromContext(ctx)
	key, err := d.key(delivery, id, m)
	if err != nil {
		reportOnce(&d.derivedReported, delivery, redeliver.ChangeDedupRefused, err)
	}
	if key == "" {
		_, err := run()
		return err
	}
	entered, err := d.enter(ctx, key)
	if err != nil {
		return err
	}
	defer d.leave(key, entered)
	seen, err := d.seen(ctx, key)
	d.seenOutage.report(delivery, redeliver.ChangeDedupStoreLost, redeliver.ChangeDedupStoreRecovered, err)
	switch {
	case err != nil:
		return redeliver.Postpone(fmt.Errorf("dedup: asking the store: %w", err))
	case seen:
		if d.Skipped != nil {
			d.Skipped(m)
		}
		if delivery != nil {
			delivery.SkipHandler()
		}
		return nil
	}
	unmarked, err := run()
	switch {
	case err != nil:
	case errors.Is(unmarked, redeliver.ErrNacked): // it runs again
	case unmarked != nil:
		reportOnce(&d.producedReported, delivery, redeliver.ChangeDedupRefused, unmarked)
	default:
		d.markOutage.report(delivery, redeliver.ChangeDedupMarksLost, redeliver.ChangeDedupMarksRecovered, d.mark(ctx, key))
	}
	return err
}

// key returns the key of a message in the store. It is empty for a message that is not deduplicated.
func (d *deduplicator[M]) key(delivery *engine.Delivery, id string, m M) (string, error) {
	scope := "\x00\x00"
	if delivery != nil {
		st := delivery.State()
		id, scope = st.ID, st.Group+"\x00"+st.Origin+"\x00"
	}
	if d.ID != nil {
		id = d.ID(m)
	} else if strings.HasPrefix(id, wirename.DerivedID) && !d.Derived {
		return "", ErrDerivedID
	}
	if id == "" {
		return "", nil
	}
	return scope + id, nil
}

// enter waits until no copy of the message runs in this process. It does not wait for a copy that has timed out.
func (d *deduplicator[M]) enter(ctx context.Context, key string) (*dedupRun, error) {
	for {
		d.mu.Lock()
		other := d.running[key]
		if other == nil || closed(other.ctx.Done()) {
			run := &dedupRun{ctx: ctx}
			d.running[key] = run
			d.mu.Unlock()
			return run, nil
		}
		if other.ended == nil {
			other.ended = make(chan struct{})
		}
		ended := other.ended
		d.mu.Unlock()
		select {
		case <-ended:
		case <-other.ctx.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("dedup: waiting for a copy of the message that runs: %w", context.Cause(ctx))
		}
	}
}

func (d *deduplicator[M]) leave(key string, run *dedupRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[key] == run {
		delete(d.running, key)
	}
	if run.ended != nil {
		close(run.ended)
	}
}

func (d *deduplicator[M]) seen(ctx context.Context, key string) (bool, error) {
	if !d.local { // memory needs no timeout
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.StoreTimeout)
		defer cancel()
	}
	return d.Store.Seen(ctx, key)
}

// mark marks a message even if its attempt has ended meanwhile, because the message was handled.
func (d *deduplicator[M]) mark(ctx context.Context, key string) error {
	if !d.local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), d.StoreTimeout)
		defer cancel()
	}
	return d.Store.Mark(ctx, key, d.TTL)
}

// storeOutage reports when a store stops answering, and when it answers again.
type storeOutage struct{ lasts atomic.Bool }

func (o *storeOutage) report(d *engine.Delivery, lost, recovered redeliver.Change, err error) {
	fails := err != nil
	if !fails && !o.lasts.Load() { // a load is cheaper than a store
		return
	}
	if changed := o.lasts.Swap(fails) != fails; !changed || d == nil {
		return
	}
	if fails {
		d.Sub().EmitChange(lost, "", err)
	} else {
		d.Sub().EmitChange(recovered, "", nil)
	}
}

func reportOnce(reported *sync.Map, d *engine.Delivery, change redeliver.Change, err error) {
	if d == nil {
		return
	}
	if _, before := reported.LoadOrStore(d.Sub(), true); !before {
		d.Sub().EmitChange(change, "", err)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
