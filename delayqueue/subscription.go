package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
)

// Scheduler writes a message to where it waits. An adapter implements it.
type Scheduler interface {
	// Schedule writes a copy of d's record, with st as its state (which must
	// be neither kept nor changed), to where it
	// waits until st.Due and comes back to st.Group alone. It returns where
	// that is (also with an error) and nil only when the broker has confirmed
	// the write.
	//
	// It tries once, within ctx: the caller tries again. It may be called by
	// many goroutines at once, and may block until ctx ends. A wait that the
	// broker cannot hold is a redeliver.UnschedulableError.
	Schedule(ctx context.Context, d *Delivery, st *redeliver.State) (where string, err error)
}

// DeadLetters writes a message to the DLQ. An adapter implements it.
type DeadLetters interface {
	// DeadLetter writes a copy of d's record, with st as its state, to the DLQ
	// of the subscription. All that is said of Schedule holds here too.
	DeadLetter(ctx context.Context, d *Delivery, st *redeliver.State) (where string, err error)
}

// Pace of repeated publishes: the first pause, the longest, and the time that
// one try may take where the subscription does not say.
const (
	firstPause         = 100 * time.Millisecond
	longestPause       = 10 * time.Second
	DefaultSendTimeout = 30 * time.Second
)

// ErrAbandoned is returned for a message that was lost to this process before
// it could be settled. It must not be acked; it comes back by itself.
var ErrAbandoned = errors.New("the message's session has ended; it stays unacked and comes back")

// Subscription is one origin read by one group, with its policy and the way to
// where its failed messages go. An adapter makes one; all fields are set before
// the first delivery and do not change. It is safe for concurrent use.
type Subscription struct {
	Origin, Group string
	Policy        redeliver.Policy // with its defaults
	Scheduler     Scheduler
	DeadLetters   DeadLetters
	// Sink is told what happens. Nil for none.
	Sink redeliver.Sink
	// Tracer puts spans around handlers. Nil for none.
	Tracer redeliver.Tracer
	// SendTimeout bounds one try to write. Default 30 s.
	SendTimeout time.Duration
	// MaxInFlight is how many first deliveries may be with handlers at once. 0
	// where it is not known.
	MaxInFlight int
	// Blocking says that a message which fails waits where it is, in the hands of
	// whoever runs it: the adapter runs nothing behind it meanwhile.
	Blocking bool
	// LongestBlock, with Blocking, is the longest wait in place: what is to wait for
	// longer goes to the DLQ, unschedulable. 0: waits are cut to redeliver.MinBlock and
	// MaxBlock, as RocketMQ's ordered consumer does.
	LongestBlock time.Duration
	// StrangersWrite says that retries come back through a place where producers write, so
	// that a producer may forge them: the rule that a message brings cannot give it more
	// retries or more time than Policy.
	StrangersWrite bool
	// Values has the values of the context of Subscribe, which a batch gets: those of a
	// message are not there. Nil where the sessions of deliveries have the same.
	Values context.Context
	// Gate is closed while a message that must go on is refused by the broker.
	Gate Gate
	// Throttle bounds what is in flight while messages fail, see Shrink.
	Throttle Throttle
	// Drain says that some of what is in flight is waited for. The adapter keeps it.
	Drain Drain
	// Stuck counts the handlers that still run although their message has moved on.
	Stuck atomic.Int64

	doubts      doubts
	watch       atomic.Pointer[watch] // ends attempts that take too long
	fingerprint atomic.Pointer[string]
	heard       atomic.Pointer[hearers]
	firsts      atomic.Pointer[firsts]
	schedule    atomic.Pointer[string]
	rivals      rivals                 // who writes under another policy
	trying      atomic.Pointer[window] // of the tries that begin now
	telling     sync.Mutex             // of changes in their order, see pause
	gathers     atomic.Bool            // its handler is one of batches: see Delivery.Gathers
	loads       loads
	answered    atomic.Bool // a middleware of ours sees its messages, see Answers
	unanswered  atomic.Bool // it was reported that none does
}

// Answers notes that a middleware of ours sees the messages of the subscription and hears what handlers answer.
func (s *Subscription) Answers() {
	if !s.answered.Load() { // a load is cheaper than a store that all cores see
		s.answered.Store(true)
	}
}

// errNoRetry is the failure of a nacked message where no middleware of ours heard the handler's error.
var errNoRetry = fmt.Errorf("%w, and no middleware.Retry saw the message: its error, Permanent and RetryAfter are lost. "+
	"Add router.AddMiddleware(middleware.Retry())", redeliver.ErrNacked)

// Tell tells the sink, if there is one. A sink that panics is not heard: it must
// not take the message, or the process, along.
func (s *Subscription) Tell(e redeliver.Event) {
	if s.Sink != nil {
		tell(s.Sink, e)
	}
}

func tell(to redeliver.Sink, e redeliver.Event) {
	defer func() { _ = recover() }()
	to.Event(e)
}

// Wants tells whether the sink is to be told of events of e's type, which every
// message has: where it is not, they need not be made. See [redeliver.Selective].
func (s *Subscription) Wants(e redeliver.Event) (wants bool) {
	if s.Sink == nil {
		return false
	}
	sel, ok := s.Sink.(redeliver.Selective)
	if !ok {
		return true
	}
	defer func() { _ = recover() }() // as in Tell
	return sel.Wants(e)
}

// Decide asks the policy about the answer of an attempt that ran under st, and may be
// asked for what would be: see [Delivery.Decide] for one that is.
func (s *Subscription) Decide(st redeliver.State, err error, now time.Time) *redeliver.Decision {
	dec := s.decide(st, err, now)
	if dec.Sparable() && s.Throttle.isOut() {
		dec = s.postpone(st, err, now)
	}
	return &dec
}

func (s *Subscription) decide(st redeliver.State, err error, now time.Time) redeliver.Decision {
	rule := s.rule(&st)
	dec := rule.Decide(st, err, now)
	dec.State.Policy = s.Fingerprint()
	return dec
}

// DecideNack asks the policy about a message that failed without an error: a
// publisher of the Router, another middleware. It is an attempt like an error,
// and runs again after delay, or, where that is 0, when the policy says. There is
// no handler to run it at once, so it goes the way of a delayed one. The error is the cause for [Subscription.Forward].
// Where no middleware of ours sees the subscription's messages it says so, and the sink hears of that once.
func (s *Subscription) DecideNack(d *Delivery, delay time.Duration, now time.Time) (*redeliver.Decision, error) {
	failure := redeliver.ErrNacked
	if !s.answered.Load() {
		failure = errNoRetry
		if !s.unanswered.Swap(true) {
			s.Tell(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: redeliver.ChangeRetryMissing, Err: failure})
		}
	}
	cause := failure
	if delay > 0 {
		cause = redeliver.RetryAfter(cause, delay)
	}
	dec := d.Decide(cause, now)
	if dec.Action == redeliver.RetryNow {
		dec.Action, dec.State.Due = redeliver.RetryLater, redeliver.CeilMilli(now.UTC())
	}
	return dec, failure
}

// Fingerprint is [Fingerprint] of the policy, reckoned once.
func (s *Subscription) Fingerprint() string {
	if p := s.fingerprint.Load(); p != nil {
		return *p
	}
	name := Fingerprint(s.Policy)
	s.fingerprint.Store(&name)
	return name
}

// Forward does what dec says: it writes the message to where it waits or to the
// DLQ and returns nil when the broker has confirmed that. Only then may the
// source be acked. The one error is [ErrAbandoned]. cause is what failed, for
// the events. It must not be called with Commit or RetryNow.
//
// A message moves on once: a second Forward of it waits for the first and does
// nothing when that has succeeded. Both a middleware and the subscriber may
// want to, where a handler nacks its message and returns an error.
func (s *Subscription) Forward(d *Delivery, dec *redeliver.Decision, cause error) error {
	root := d.root()
	if !root.claim() {
		return nil
	}
	defer root.release()
	d.decided(dec, cause)
	where, err := s.PersistDecision(d, dec, nil)
	if err != nil {
		s.abandoned(d, cause)
		return err
	}
	root.said = tells(dec)
	root.forwarded.Store(true)
	if dec.Action == redeliver.DeadLetter && s.Throttle.guard != nil {
		s.Throttle.buried(d)
	}
	s.written(dec, where, cause)
	if s.Tracer != nil && dec.Action == redeliver.DeadLetter {
		d.buried(dec, where, cause)
	}
	return nil
}

func (s *Subscription) abandoned(d *Delivery, cause error) {
	d.EndSpan(redeliver.OutcomeAbandoned, cause)
	s.Tell(redeliver.Abandoned{State: d.State(), Err: cause})
}

// Persist calls write until it returns nil, each time with a context that ends
// after SendTimeout, or up to a 64th of that before, and not with the try. The
// context is detached from the handler's: a handler that was cancelled has still
// failed, and its message must still go on. Between the tries there is a growing
// pause with the gate closed; the handler does not run again. It gives up, with
// [ErrAbandoned], only when the message is lost to this process. write returns
// where it writes to, also with an error.
func (s *Subscription) Persist(d *Delivery, st *redeliver.State, write func(context.Context) (string, error)) (string, error) {
	if d.Lost() {
		return "", ErrAbandoned
	}
	where, err := write(s.try(time.Now()))
	if err != nil {
		return s.insist(d, st, write, where, err)
	}
	return where, nil
}

// insist goes on after a first try that failed.
func (s *Subscription) insist(d *Delivery, st *redeliver.State, write func(context.Context) (string, error), where string, err error) (string, error) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause),
		backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(0))
	shut := false
	defer func() {
		if shut {
			s.resume()
		}
	}()
	for try := 1; ; try++ {
		switch outage := s.doubts.concernsAll(where, err); {
		case shut && !outage:
			shut = false
			s.resume()
		case !shut && outage && !d.Lost(): // a message that was lost meanwhile is given up below: nothing pauses for it
			shut = true
			s.pause(where, err)
		}
		wait := pause.NextBackOff()
		s.Tell(redeliver.PublishFailed{State: *st, Where: where, Err: err, Try: try, Retry: wait})
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.lost():
			timer.Stop()
		}
		if d.Lost() {
			return "", ErrAbandoned
		}
		if where, err = write(s.try(time.Now())); err == nil {
			return where, nil
		}
	}
}

// window is the context of all tries that begin within a short while: with a timer for
// each, BenchmarkRouterFailure of package middleware takes twice as long.
type window struct {
	ctx    context.Context
	closes time.Time // for tries that begin later there is another one
}

// try returns the context for a try to write that begins now.
func (s *Subscription) try(now time.Time) context.Context {
	if w := s.trying.Load(); w != nil && now.Before(w.closes) {
		return w.ctx
	}
	timeout := s.SendTimeout
	if timeout <= 0 {
		timeout = DefaultSendTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	context.AfterFunc(ctx, cancel) // nobody can tell sooner that no try needs it
	s.trying.Store(&window{ctx, now.Add(timeout / 64)})
	return ctx
}

func (s *Subscription) written(dec *redeliver.Decision, where string, cause error) {
	if s.Sink == nil {
		return
	}
	switch dec.Action {
	case redeliver.DeadLetter:
		s.Tell(redeliver.DeadLettered{State: dec.State, Where: where, Err: cause})
	case redeliver.Postponed:
		s.Tell(redeliver.MessagePostponed{State: dec.State, Delay: dec.Delay, Where: where, Err: cause})
	default:
		s.Tell(redeliver.RetryScheduled{State: dec.State, Delay: dec.Delay, Where: where, Err: cause})
	}
}
