package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/observe"
)

// DefaultSendTimeout is the default of Subscription.SendTimeout.
const DefaultSendTimeout = 30 * time.Second

// ErrAbandoned is the answer for a message that this process lost before settling it. It must not be acked; it comes
// back.
var ErrAbandoned = errors.New("the message's session has ended; it stays unacked and comes back")

// Subscription is one origin read by one group, with its policy. An adapter makes one; all fields are set before the first
// message and do not change. It is safe for concurrent use.
type Subscription struct {
	Origin, Group string
	Policy        redeliver.Policy // with its defaults
	// Sink receives events. Nil for none.
	Sink redeliver.Sink
	// Tracer puts spans around handlers. Nil for none.
	Tracer observe.Tracer
	// SendTimeout bounds one try to write. Default 30 s.
	SendTimeout time.Duration
	// NackDelay is the wait of a message that was nacked without an error. Default: the policy's backoff.
	NackDelay time.Duration
	// MaxInFlight bounds the first deliveries that run at once, MaxRetriesInFlight the retries. 0 means no bound. While many
	// messages fail, fewer run, at least MinInFlight of both together; 0 turns that off. See slots.
	MaxInFlight, MaxRetriesInFlight, MinInFlight int
	// KeepsPlace reports whether a failed message keeps its place: it waits here, and messages of its key wait behind it.
	KeepsPlace bool
	// MaxInPlace, with KeepsPlace, is the longest wait in place where the order is OrderThroughRetries; a longer one is unschedulable. It is 0
	// with OrderBlocking: waits are from limits.MinBlock to MaxBlock.
	MaxInPlace time.Duration
	// MaxHeld is how long the broker leaves an attempt a message that is unsettled here, without the wait that the policy may
	// spend before it; 0 means no bound. MaxHeldWhy says why, and how to raise it.
	MaxHeld    time.Duration
	MaxHeldWhy string
	// WaitsInSource reports whether failed messages wait in their source although the order is not OrderBlocking. After a timeout
	// the message is then settled only when its handler has returned or is stuck: attempts must not run side by side.
	WaitsInSource bool
	// Discards reports whether there is no DLQ: a message that would go there is acked and reported as discarded.
	Discards bool
	// Values has the values of the context of Subscribe, for batches. It is nil if the lanes' contexts have them.
	Values context.Context
	// Turn lets suspects run alone. Nil if there are none.
	Turn *Turn
	// Operations knows which requests of the subscription fail. Its owner attaches the subscription. Default: its own, until
	// the engine closes.
	Operations *Operations
	// Drain counts the lanes that drain.
	Drain Drain
	// Gate is closed while a message cannot be written to its next place, or while the group is paused: nothing new begins.
	Gate Gate
	// NewGate is closed while new messages are paused: no first delivery begins.
	NewGate Gate

	slots            slots
	paused           atomic.Pointer[redeliver.PauseMark] // nil while the group is not paused
	unwritten        int                                 // messages that cannot be written; guarded by eventMu
	doubts           doubts
	failingPublishes atomic.Int64                  // delayed publishes that the origin does not accept
	watch            *watch                        // ends attempts that take too long; nil without a Timeout
	fingerprint      string                        // of Policy
	detachOperations func()                        // of its own Operations; nil if others own them
	counter          observe.Counter               // of messages that succeed at once; nil for none
	uncounted        redeliver.Sink                // gets the events of those messages, if there is a counter; nil for none
	otherPolicies    otherPolicies                 // other policies under which messages are written
	writeWindow      atomic.Pointer[tryWindow]     // the context of writes that begin now
	eventMu          sync.Mutex                    // keeps the events of changes in order
	gathers          atomic.Bool                   // its handler gathers batches
	loads            registry[func() observe.Load] // of its parts: partitions or queues
	abandoned        atomic.Int64                  // attempts that ended early, uncounted
	stuck            atomic.Int64                  // handlers that still run although their message was settled
	hasMiddleware    atomic.Bool                   // a middleware of redeliver gets its messages
	retryMissing     atomic.Bool                   // the sink got ChangeRetryMissing
}

// HasBatches reports whether the handler of the subscription gets batches. With a Router that is known from the first message on.
func (s *Subscription) HasBatches() bool { return s.gathers.Load() }

// WaitsForFailed reports whether later messages of a key wait for one that has failed.
func (s *Subscription) WaitsForFailed() bool {
	return s.KeepsPlace || s.WaitsInSource || s.Policy.Order == redeliver.OrderThroughRetries
}

// Start prepares the subscription. It must be called once, before the first message.
func (s *Subscription) Start() {
	s.slots.init(s)
	s.watch = newWatch(&s.Policy)
	s.fingerprint = delayqueue.Fingerprint(s.Policy)
	s.findCounter()
	if s.Operations == nil {
		s.Operations = &Operations{}
		s.detachOperations = s.Operations.Attach(s)
	}
}

// Abandoned returns how many attempts have ended early, uncounted.
func (s *Subscription) Abandoned() int64 { return s.abandoned.Load() }

// OnlyProbes reports whether only probes may begin, because of an outage, of too many dead letters, or of a handler's pause.
func (s *Subscription) OnlyProbes() bool {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	return s.slots.guard.OnlyProbes()
}

// RecordMiddleware records that a middleware of redeliver gets the subscription's messages and their handlers' errors.
func (s *Subscription) RecordMiddleware() {
	if !s.hasMiddleware.Load() { // a load is cheaper than a store
		s.hasMiddleware.Store(true)
	}
}

// errNoRetry is the failure of a nacked message where no middleware of redeliver saw the handler's error.
var errNoRetry = fmt.Errorf("%w, and no middleware.Retry saw the message: its error, Permanent and RetryAfter are lost. "+
	"Add router.AddMiddleware(middleware.Retry())", redeliver.ErrNacked)

// nackError returns the failure of a message that was nacked without an error. If no middleware of redeliver gets the
// messages, it reports that to the sink once.
func (s *Subscription) nackError() error {
	if s.hasMiddleware.Load() {
		return redeliver.ErrNacked
	}
	if !s.retryMissing.Swap(true) {
		s.EmitChange(redeliver.ChangeRetryMissing, "", errNoRetry)
	}
	return errNoRetry
}

// Emit passes an event to the sink, if there is one. A panic of the sink is ignored: it must not end the message or the process.
func (s *Subscription) Emit(e redeliver.Event) {
	if s.Sink != nil {
		emit(s.Sink, e)
	}
}

func emit(to redeliver.Sink, e redeliver.Event) {
	defer func() { _ = recover() }()
	to.Event(e)
}

// EmitChange passes a change of the subscription to the sink.
func (s *Subscription) EmitChange(change redeliver.Change, detail string, err error) {
	s.Emit(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: change, Detail: detail, Err: err})
}

// Wants reports whether the sink wants events of e's type. See [observe.FilteringSink].
func (s *Subscription) Wants(e redeliver.Event) bool { return wants(s.Sink, e) }

func wants(to redeliver.Sink, e redeliver.Event) (wants bool) {
	sel, ok := to.(observe.FilteringSink)
	if !ok {
		return to != nil
	}
	defer func() { _ = recover() }() // as in Emit
	return sel.Wants(e)
}

// Decide asks the policy about the failure of a message with the state st, without counting it.
func (s *Subscription) Decide(st redeliver.State, err error, now time.Time) *redeliver.Decision {
	dec := s.applyPolicy(st, err, now)
	if s.slots.guard.Detects && s.slots.postpones(s.failure(&dec, &st, err, now)) {
		dec = s.postpone(st, err, now)
	}
	return &dec
}

// applyPolicy asks the policy about a failure. The policy of the process that handles the message decides, also if another one
// planned the message's wait.
func (s *Subscription) applyPolicy(st redeliver.State, err error, now time.Time) redeliver.Decision {
	dec := s.Policy.Decide(st, err, now)
	dec.State.Policy = s.fingerprint
	return dec
}

// postpone decides about a failure in an outage.
func (s *Subscription) postpone(st redeliver.State, err error, now time.Time) redeliver.Decision {
	dec := s.Policy.Postpone(st, err, now)
	dec.State.Policy = s.fingerprint
	return dec
}

// Fingerprint returns [delayqueue.Fingerprint] of the policy.
func (s *Subscription) Fingerprint() string { return s.fingerprint }

// tryWindow is the context of all writes that begin within a short time. A timer for each would double the cost of a
// failure (BenchmarkFailure).
type tryWindow struct {
	ctx    context.Context
	closes time.Time // writes that begin later get another one
}

// tryContext returns the context for a write that begins now. It ends after SendTimeout, or up to a 64th of that earlier. It does
// not end with the handler's context: the message of a cancelled handler must still be written.
func (s *Subscription) tryContext(now time.Time) context.Context {
	if w := s.writeWindow.Load(); w != nil && now.Before(w.closes) {
		return w.ctx
	}
	timeout := s.SendTimeout
	if timeout <= 0 {
		timeout = DefaultSendTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	context.AfterFunc(ctx, cancel) // nothing can release it sooner
	s.writeWindow.Store(&tryWindow{ctx, now.Add(timeout / 64)})
	return ctx
}

// A change (a closed gate, one more stuck handler) and its event are one step under eventMu. So the sink gets the events in
// order: a gauge keeps the last one.

// closeGate closes the gate for a message that cannot be written to where, a topic or queue.
func (s *Subscription) closeGate(where string, err error) {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	s.Gate.Close()
	if s.unwritten++; s.unwritten == 1 {
		s.EmitChange(redeliver.ChangeIntakePaused, "writing to "+where, err)
	}
}

// openGate undoes one closeGate.
func (s *Subscription) openGate() {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	s.Gate.Open()
	if s.unwritten--; s.unwritten == 0 {
		s.EmitChange(redeliver.ChangeIntakeResumed, "", nil)
	}
}

// emitStuck adds n to the number of stuck handlers, and passes to the sink the event that event returns for the new number.
func (s *Subscription) emitStuck(n int64, event func(stuck int64) redeliver.Event) {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	s.Emit(event(s.stuck.Add(n)))
}

// reportWritten reports to the sink that a decision was carried out: the broker has confirmed the write.
func (s *Subscription) reportWritten(dec *redeliver.Decision, where string, cause error) {
	if s.Sink == nil {
		return
	}
	switch {
	case dec.Action == redeliver.ActionDeadLetter && s.Discards:
		s.Emit(redeliver.Discarded{State: dec.State, Err: cause})
	case dec.Action == redeliver.ActionDeadLetter:
		s.Emit(redeliver.DeadLettered{State: dec.State, Where: where, Err: cause})
	case dec.Action == redeliver.ActionPostpone:
		s.Emit(redeliver.MessagePostponed{State: dec.State, Delay: dec.Delay, Where: where, Err: cause})
	default:
		s.Emit(redeliver.RetryScheduled{State: dec.State, Delay: dec.Delay, Where: where, Err: cause})
	}
}
