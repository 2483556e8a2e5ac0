package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// Operation is one kind of request of an adapter, at one topic or queue.
type Operation struct{ Name, Place string }

func (o Operation) String() string { return o.Name + " on " + o.Place }

const (
	// minOperationTrouble is how long an operation must fail before that is reported, unless the broker refuses it.
	minOperationTrouble = 10 * time.Second
	// operationRepeat is the interval at which a lasting failure is reported again.
	operationRepeat = time.Minute
	// maxOperationIdle is how long an operation that has failed stays failed although nothing tries it again.
	maxOperationIdle = 5 * time.Minute
)

// Operations knows which operations of an adapter fail, so that none fails forever in silence. An adapter passes the
// result of each request that it makes for running subscriptions. A refusal is reported to the subscriptions' sinks
// at once, any other failure when it has lasted. The next success is reported, too. The zero value is ready. It is safe
// for concurrent use.
type Operations struct {
	mu      sync.Mutex
	subs    []*Subscription
	failed  map[Operation]*operationFailure
	stopped bool // the gates of subs are closed
	// anyFailed reports whether failed is not empty, so that a success in normal operation takes no lock.
	anyFailed atomic.Bool

	forgetting *time.Timer // of the next failure to forget; nil before the first failure

	news     []operationEvent // not yet passed to the sinks
	emitting bool             // a caller passes news to the sinks
}

// operationEvent is an event for one subscription.
type operationEvent struct {
	sub    *Subscription
	change redeliver.Change
	detail string
	err    error
}

// emit passes the news to the sinks, in order and without the lock, because a sink may call its client. If another caller
// does so at the moment, that one passes these, too.
func (o *Operations) emit() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.emitting {
		return
	}
	o.emitting = true
	for len(o.news) > 0 {
		news := o.news
		o.news = nil
		o.mu.Unlock()
		for _, e := range news {
			e.sub.EmitChange(e.change, e.detail, e.err)
		}
		o.mu.Lock()
	}
	o.emitting = false
}

// operationFailure is a row of failures of one operation, without a success in between.
type operationFailure struct {
	since, last time.Time
	reported    time.Time // the last time; zero if not yet
	err         error
	refused     bool
	stops       bool // while it is refused, nothing new may begin
}

// Attach reports later failures to s, until detach is called.
func (o *Operations) Attach(s *Subscription) (detach func()) {
	defer o.emit()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		s.Gate.Close()
	}
	o.subs = append(o.subs, s)
	for op, f := range o.failed {
		if !f.reported.IsZero() {
			o.addFailureLocked(s, op, f)
		}
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for i, other := range o.subs {
			if other == s {
				o.subs = append(o.subs[:i:i], o.subs[i+1:]...)
				break
			}
		}
		if o.stopped {
			s.Gate.Open()
		}
	}
}

// Failed records a failure. refused reports whether the broker refuses the operation, so that only a change of rights or
// settings helps. stops reports whether nothing new may begin while the operation is refused.
func (o *Operations) Failed(op Operation, err error, refused, stops bool) {
	defer o.emit()
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	f := o.failed[op]
	if f == nil {
		if o.failed == nil {
			o.failed = make(map[Operation]*operationFailure)
		}
		f = &operationFailure{since: now}
		o.failed[op] = f
		o.anyFailed.Store(true)
		if o.forgetting == nil {
			o.forgetting = time.AfterFunc(maxOperationIdle, o.forget)
		} else if len(o.failed) == 1 {
			o.forgetting.Reset(maxOperationIdle)
		}
	}
	f.last, f.err, f.refused = now, err, refused
	f.stops = f.stops || stops
	o.setGatesLocked()
	if (refused || now.Sub(f.since) >= minOperationTrouble) && now.Sub(f.reported) >= operationRepeat {
		o.reportLocked(op, f)
	}
}

// Record records the result of a request: see Failed and Succeeded.
func (o *Operations) Record(op Operation, err error, refused, stops bool) {
	if err == nil {
		o.Succeeded(op)
		return
	}
	o.Failed(op, err, refused, stops)
}

// Stop lets nothing new begin while op is refused, if it is.
func (o *Operations) Stop(op Operation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if f := o.failed[op]; f != nil {
		f.stops = true
		o.setGatesLocked()
	}
}

// Succeeded records a success.
func (o *Operations) Succeeded(op Operation) {
	if !o.anyFailed.Load() {
		return
	}
	defer o.emit()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed[op] != nil {
		o.endLocked(op, op.String())
	}
}

// Stops reports whether nothing new may begin because of a refusal.
func (o *Operations) Stops() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped
}

// Reported reports whether an event has said that op fails, and it still does.
func (o *Operations) Reported(op Operation) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.failed[op]
	return f != nil && !f.reported.IsZero()
}

// Failing returns the operations that fail.
func (o *Operations) Failing() []Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.failed))
}

// forget ends the rows of failures that nothing has continued for a while.
func (o *Operations) forget() {
	defer o.emit()
	o.mu.Lock()
	defer o.mu.Unlock()
	next := maxOperationIdle
	for op, f := range o.failed {
		left := maxOperationIdle - time.Since(f.last)
		if left <= 0 {
			o.endLocked(op, op.String()+": it was not needed again")
			continue
		}
		next = min(next, left)
	}
	if len(o.failed) > 0 {
		o.forgetting.Reset(next)
	}
}

// endLocked ends a row of failures. The end of one must not look like the end of all, so it reports the others again.
func (o *Operations) endLocked(op Operation, detail string) {
	ended := o.failed[op]
	delete(o.failed, op)
	o.anyFailed.Store(len(o.failed) > 0)
	o.setGatesLocked()
	if ended.reported.IsZero() {
		return
	}
	for _, s := range o.subs {
		o.news = append(o.news, operationEvent{s, redeliver.ChangeOperationWorks, detail, nil})
	}
	for other, f := range o.failed {
		if !f.reported.IsZero() {
			o.reportLocked(other, f)
		}
	}
}

func (o *Operations) reportLocked(op Operation, f *operationFailure) {
	f.reported = time.Now()
	for _, s := range o.subs {
		o.addFailureLocked(s, op, f)
	}
}

func (o *Operations) addFailureLocked(s *Subscription, op Operation, f *operationFailure) {
	detail := op.String()
	if f.refused && f.stops {
		detail += "; nothing new begins until it works"
	}
	o.news = append(o.news, operationEvent{s, redeliver.ChangeOperationFails, detail, f.err})
}

// setGatesLocked closes the gates of the subscriptions while a reported failure stops them.
func (o *Operations) setGatesLocked() {
	stopped := false
	for _, f := range o.failed {
		stopped = stopped || f.refused && f.stops
	}
	if stopped == o.stopped {
		return
	}
	o.stopped = stopped
	for _, s := range o.subs {
		if stopped {
			s.Gate.Close()
		} else {
			s.Gate.Open()
		}
	}
}
