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
	"github.com/redeliver/redeliver/internal/engine"
)

// Defaults of [DedupConfig].
const (
	DefaultDedupTTL          = 24 * time.Hour
	DefaultDedupStoreTimeout = 5 * time.Second
)

// ErrDerivedID is why a message is not deduplicated whose id was derived from
// its content: two messages that say the same are not the same message.
var ErrDerivedID = errors.New("dedup: the message has no id of its own; have its publisher set one, or set DedupConfig.Derived where equal messages are duplicates")

// ErrProduced is why a message is not marked whose handler has produced others:
// a Router publishes them after all middlewares, and that may fail.
var ErrProduced = errors.New("dedup: what the handler produced is published after Dedup; put PublishInside inside Dedup")

// derived is what the id of a message without one begins with.
const derived = "derived:"

// DedupConfig says what [Dedup] takes for a duplicate.
type DedupConfig struct {
	// Store knows the ids of handled messages. Default: a [DedupMemory] of
	// 100,000 ids, for this process alone.
	Store DedupStore
	// TTL is how long an id is known. Default 24 h.
	TTL time.Duration
	// StoreTimeout bounds one call of the store. Default 5 s.
	StoreTimeout time.Duration
	// ID names a message; one for which it is empty is not deduplicated. It must
	// be safe for concurrent use. Default: the id of redeliver, which is the
	// message's own where its publisher gave it one.
	ID func(*message.Message) string
	// Derived says that ids which were derived from a message's content will do,
	// so that equal messages are duplicates. Default: such a message is handled
	// however often it comes, and the sink is told once.
	Derived bool
	// Skipped is called for each duplicate. It must be quick. Default: none.
	Skipped func(*message.Message)
}

func (c DedupConfig) withDefaults() DedupConfig {
	if c.Store == nil {
		c.Store = NewDedupMemory(0)
	}
	c.TTL = cmp.Or(c.TTL, DefaultDedupTTL)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, DefaultDedupStoreTimeout)
	return c
}

// Validate returns all that is wrong with the configuration in one
// [redeliver.ConfigError].
func (c DedupConfig) Validate() error {
	var ps redeliver.Problems
	if c.TTL < 0 {
		ps.Add("DedupConfig.TTL", c.TTL, "must not be negative; 0 is the default, 24h")
	}
	if c.StoreTimeout < 0 {
		ps.Add("DedupConfig.StoreTimeout", c.StoreTimeout, "must not be negative; 0 is the default, 5s")
	}
	return ps.Err()
}

// DedupStore knows what was handled. It is safe for concurrent use. A key names
// a message, its origin and the group that handled it, and may have any bytes.
type DedupStore interface {
	// Seen reports whether a key was marked and its time is not over.
	Seen(ctx context.Context, key string) (bool, error)
	// Mark notes a key for a time.
	Mark(ctx context.Context, key string, ttl time.Duration) error
}

// Dedup returns a middleware that acks a message without running its handler
// when the same message was handled before, by this group. It stands inside
// Retry, and outside of PublishInside and Batch:
//
//	router.AddMiddleware(middleware.Retry(), middleware.Dedup(middleware.DedupConfig{Store: store}))
//
// An id is marked when its handler has succeeded, and not before: a message that
// fails is retried, and a dead-lettered one can be replayed. Copies that come at
// the same time to the same process run one after another.
//
// It makes duplicates rare, and *engine.Delivery not exactly-once:
//   - A process that dies between the end of the handler and the mark runs the
//     message again. Only the handler's own transaction can fix that.
//   - Copies at the same time in two processes may both run.
//   - A copy that comes after the TTL, or after more ids than the store holds,
//     runs again; and each process has a memory of its own.
//   - A duplicate is one by its id. On Kafka a message without a Watermill UUID
//     is named by its offset, which knows redeliveries and not what a producer
//     wrote twice.
//   - The answer of a handler that outlived its Timeout is ignored, but its mark
//     is not: the retry is a duplicate then.
//
// While the store cannot be asked, messages are postponed: no attempt is
// counted. When a mark is refused the message is acked all the same: it was
// handled. The sink is told of both when they begin and when they are over
// (SubscriptionChanged). Dedup panics with a [redeliver.ConfigError] when config
// is invalid.
func Dedup(config DedupConfig) message.HandlerMiddleware {
	if err := config.Validate(); err != nil {
		panic(err)
	}
	d := &dedup{DedupConfig: config.withDefaults(), running: make(map[string]*dedupRun)}
	_, d.local = d.Store.(*DedupMemory)
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return d.handle(h, msg) }
	}
}

type dedup struct {
	DedupConfig

	local           bool // the store is in memory
	asking, marking outage
	derivedTold     sync.Map // by subscription
	producedTold    sync.Map

	mu      sync.Mutex
	running map[string]*dedupRun
}

// dedupRun is a message whose handler runs.
type dedupRun struct {
	ctx  context.Context
	over chan struct{} // made when somebody waits
}

func (d *dedup) handle(h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	ctx, deliv := msg.Context(), engine.FromContext(msg.Context())
	key, err := d.key(deliv, msg)
	if err != nil {
		tellOnce(&d.derivedTold, deliv, redeliver.ChangeDedupRefused, err)
	}
	if key == "" {
		return h(msg)
	}
	run, err := d.enter(ctx, key)
	if err != nil {
		return nil, err
	}
	defer d.leave(key, run)
	seen, err := d.seen(ctx, key)
	d.asking.told(deliv, redeliver.ChangeDedupStoreLost, redeliver.ChangeDedupStoreBack, err)
	switch {
	case err != nil:
		return nil, redeliver.Postpone(fmt.Errorf("dedup: asking the store: %w", err))
	case seen:
		if d.Skipped != nil {
			d.Skipped(msg)
		}
		return nil, nil
	}
	produced, err := h(msg)
	switch {
	case err != nil:
	case len(produced) > 0:
		tellOnce(&d.producedTold, deliv, redeliver.ChangeDedupRefused, ErrProduced)
	default:
		d.marking.told(deliv, redeliver.ChangeDedupMarksLost, redeliver.ChangeDedupMarksBack, d.mark(ctx, key))
	}
	return produced, err
}

// key names a message; it is empty for one that is not to be deduplicated.
func (d *dedup) key(deliv *engine.Delivery, msg *message.Message) (string, error) {
	id, scope := msg.UUID, "\x00\x00"
	if deliv != nil {
		st := deliv.State()
		id, scope = st.ID, st.Group+"\x00"+st.Origin+"\x00"
	}
	if d.ID != nil {
		id = d.ID(msg)
	} else if strings.HasPrefix(id, derived) && !d.Derived {
		return "", ErrDerivedID
	}
	if id == "" {
		return "", nil
	}
	return scope + id, nil
}

// enter waits until no copy of the message runs in this process. One whose time
// is over may never return, and is not waited for.
func (d *dedup) enter(ctx context.Context, key string) (*dedupRun, error) {
	for {
		d.mu.Lock()
		other := d.running[key]
		if other == nil || closed(other.ctx.Done()) {
			run := &dedupRun{ctx: ctx}
			d.running[key] = run
			d.mu.Unlock()
			return run, nil
		}
		if other.over == nil {
			other.over = make(chan struct{})
		}
		over := other.over
		d.mu.Unlock()
		select {
		case <-over:
		case <-other.ctx.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("dedup: waiting for a copy of the message that runs: %w", context.Cause(ctx))
		}
	}
}

func (d *dedup) leave(key string, run *dedupRun) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[key] == run {
		delete(d.running, key)
	}
	if run.over != nil {
		close(run.over)
	}
}

func (d *dedup) seen(ctx context.Context, key string) (bool, error) {
	if !d.local { // a context is dear, and memory answers
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.StoreTimeout)
		defer cancel()
	}
	return d.Store.Seen(ctx, key)
}

// mark is detached from the attempt: what was handled is handled.
func (d *dedup) mark(ctx context.Context, key string) error {
	if !d.local {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), d.StoreTimeout)
		defer cancel()
	}
	return d.Store.Mark(ctx, key, d.TTL)
}

// outage tells of a store that does not answer, when that begins and when it is over.
type outage struct{ is atomic.Bool }

func (o *outage) told(d *engine.Delivery, lost, back redeliver.Change, err error) {
	if err == nil && !o.is.Load() || o.is.Swap(err != nil) == (err != nil) || d == nil {
		return
	}
	change := lost
	if err == nil {
		change = back
	}
	d.Sub().TellChange(change, "", err)
}

func tellOnce(told *sync.Map, d *engine.Delivery, change redeliver.Change, err error) {
	if d == nil {
		return
	}
	if _, before := told.LoadOrStore(d.Sub(), true); !before {
		d.Sub().TellChange(change, "", err)
	}
}
