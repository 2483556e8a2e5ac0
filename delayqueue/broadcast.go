package delayqueue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Broadcast hands the messages of a broadcast consumer, of which every process gets
// all, to whoever reads Out: several at once, those of one key one after another.
// Each is an attempt under the subscription's policy. One that fails is told of,
// and the next goes on: there is no group that could get it back.
//
// An adapter makes one for each Subscribe, has Run call its intake, and that calls
// Deliver. All of it is safe for concurrent use.
type Broadcast struct {
	// Out is closed when Run returns.
	Out chan *message.Message

	sub     *Subscription
	ctx     context.Context // its end: what is in hand is lost to this process
	cancel  context.CancelCauseFunc
	workers *Workers[*airing]
	hand    chan struct{} // a token for each message in hand

	mu      sync.Mutex
	last    map[uint64]*airing // the last of each key in hand
	ready   FIFO[*airing]      // waits for nothing but a handler
	running int
	held    int  // in hand, and has not begun
	over    bool // nothing begins any more
}

// Aired is a message that an adapter has read.
type Aired struct {
	// Values has values for the message's context, beside those of the Broadcast's.
	// Nil for none.
	Values context.Context
	Record Record
	ID     string
	Source redeliver.Source
	// Key is a hash of the message's key, where it is Keyed. Messages with one Key
	// run one after another, unless the policy's order is redeliver.Unordered.
	Key   uint64
	Keyed bool
	// Done is called once, from any goroutine: the message was handled, or has
	// failed; or, with false, it was lost to this process before.
	Done func(settled bool)
}

// handFactor times MaxInFlight is how many messages are in hand at most: those that
// wait for their key must not keep out the others.
const handFactor = 10

var errSilenced = errors.New("the broadcast consumer is closed")

// NewBroadcast makes a Broadcast of a subscription with its Policy (see
// BroadcastPolicy), Sink and MaxInFlight, which must be at least 1. It has the
// values of ctx, not its end.
func NewBroadcast(ctx context.Context, sub *Subscription) *Broadcast {
	sub.Broadcast, sub.Values = true, context.WithoutCancel(ctx)
	b := &Broadcast{
		Out: make(chan *message.Message), sub: sub, workers: NewWorkers((*airing).work),
		hand: make(chan struct{}, handFactor*sub.MaxInFlight), last: make(map[uint64]*airing),
	}
	b.ctx, b.cancel = context.WithCancelCause(sub.Values)
	return b
}

// BroadcastPolicy is a policy with its defaults as a broadcast consumer runs it, and
// notes what it asks for that there is none of: a message that failed waits nowhere.
func BroadcastPolicy(ps *redeliver.Problems, field string, p redeliver.Policy) redeliver.Policy {
	const none = "what fails in a broadcast consumer is reported, and waits nowhere for a retry"
	if p.MaxRetries != 0 && p.MaxRetries != redeliver.NoRetries {
		ps.Add(field+".MaxRetries", p.MaxRetries, "must be 0 or NoRetries: "+none+"; Immediate says how often it is tried again at once")
	}
	if p.Backoff != nil {
		ps.Add(field+".Backoff", p.Backoff, "must be nil: "+none)
	}
	if len(p.Levels) > 0 {
		ps.Add(field+".Levels", p.Levels, "must be empty: "+none)
	}
	if p.Guarded() {
		ps.Add(field, "with a guard", "must have no Outage or DeadLetterRate: "+none)
		p.Outage, p.DeadLetterRate = redeliver.Outage{}, redeliver.DeadLetterRate{}
	}
	ps.Order(field, p, redeliver.KeyOrder, redeliver.Unordered)
	p.MaxRetries, p.Backoff, p.Levels = redeliver.NoRetries, nil, nil
	if p.Immediate > 0 {
		p.MaxRetries = p.Immediate
	}
	ps.Policy(field, p)
	return p.WithDefaults()
}

// Run calls intake, which must return when ctx ends, and then waits for the handlers
// that run, for as long as drain; what has not begun does not begin any more. Then
// it ends the contexts of those that still run, and closes Out.
func (b *Broadcast) Run(ctx context.Context, drain time.Duration, intake func(context.Context)) {
	defer close(b.Out)
	defer b.sub.Watched()()
	defer b.sub.Carry(b.Load)()
	defer b.workers.Close()
	defer b.cancel(errSilenced)
	intake(ctx)
	b.sub.Drain.Begin()
	defer b.sub.Drain.End()
	b.silence()
	deadline := time.AfterFunc(drain, func() { b.cancel(errSilenced) })
	defer deadline.Stop()
	for range cap(b.hand) { // every token there is: nothing is in hand any more
		b.hand <- struct{}{}
	}
}

// Deliver takes a message in hand, as soon as there is room for it. It is false when
// ctx has ended before; Done was not called then.
func (b *Broadcast) Deliver(ctx context.Context, m *Aired) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case b.hand <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	x := &airing{b: b, Aired: *m}
	x.Keyed = x.Keyed && b.sub.Policy.Order != redeliver.Unordered
	d := &x.delivery
	d.Sub, d.Record, d.ID, d.Source, d.Mover = b.sub, m.Record, m.ID, m.Source, x
	if m.Values == nil {
		d.Begin(b.ctx)
	} else {
		d.Begin(&lent{b.ctx, m.Values})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held++
	if x.Keyed {
		last, busy := b.last[x.Key]
		b.last[x.Key] = x
		if busy {
			last.behind = x
			return true
		}
	}
	b.ready.Push(x)
	b.begin()
	return true
}

// lent is a context that has the values of another one, too. Those may be of another
// message of redeliver: an in-process Pub/Sub can keep the context of whoever published.
// So what is found here of an attempt is this message's only if its delivery is, see Same.
type lent struct {
	context.Context
	values context.Context
}

// Value implements [context.Context]. The standard library looks here for what ends it.
func (c *lent) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// begin has handlers run for what is ready. The caller holds mu.
func (b *Broadcast) begin() {
	for !b.over && !b.ready.Empty() && b.running < b.sub.MaxInFlight {
		b.running++
		b.held--
		b.workers.Give(b.ready.Pop())
	}
}

// silence drops what has not begun. What waits behind a message that runs is dropped
// when that has ended.
func (b *Broadcast) silence() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for !b.ready.Empty() {
		b.drop(b.ready.Pop())
	}
}

// drop lets go of a message that has not begun, and of those behind it. The caller
// holds mu.
func (b *Broadcast) drop(x *airing) {
	for ; x != nil; x = x.behind {
		if !x.ended.Swap(true) {
			b.held--
			go x.release(false) // Done is the adapter's, and may take its time
		}
	}
}

// next lets the next of a message's key go, when that has run.
func (b *Broadcast) next(x *airing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	switch {
	case x.behind != nil && b.over:
		b.drop(x.behind)
	case x.behind != nil:
		b.ready.Push(x.behind)
	case x.Keyed && b.last[x.Key] == x:
		delete(b.last, x.Key)
	}
	b.begin()
}
