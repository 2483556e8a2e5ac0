package engine

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/guard"
)

// How failures change the limit of slots.
const (
	slotsWindow = time.Second // how long outcomes are counted before the limit changes
	minFailures = 10          // minimum failures in a window for a shrink: fewer do not show that a dependency fails
	growSteps   = 16          // windows in which the limit grows from zero to the maximum
)

// Classes of messages. Two have their own slots, so that neither starves the other.
const (
	firstDelivery = 0
	retry         = 1
	noSlot        = 2 // needs no slot: no handler sees the message, or it runs alone
)

// slots bounds what a subscription has in flight, over all its lanes: first deliveries and retries each by their own limit.
//
// With MinInFlight there is also a limit for both together. It is halved after a second in which at least half of the messages
// failed. It grows by a sixteenth of the maximum after a second in which nine of ten succeeded. While only probes may begin,
// one at a time gets a slot.
//
// A lane that gets no slot waits in a queue. When a slot is free, the lane is woken with mayTake set: it
// takes or yields the slot. No other lane gets that slot meanwhile.
//
// Each step reads the clock once, under the lock. A pause that ended between two readings could leave a lane that found no slot
// asleep: neither another lane nor the alarm would wake it.
type slots struct {
	sub *Subscription

	mu       sync.Mutex
	maxUsed  [2]int // 0: no limit
	used     [2]int
	inFlight int // used of both classes
	guard    guard.Guard
	rate     *rateLimiter // nil for none

	minLimit, maxLimit int           // of both classes together; minLimit 0: limit stays 0
	limit              int           // now; 0: it has not shrunk
	peak               int           // of inFlight in this window
	since              time.Duration // the start of the window; negative before the first
	succeeded, failed  int           // in this window

	queues   [2]FIFO[*slotWaiter] // by class
	promised [2]int               // waiters with mayTake, by class
	last     int                  // the class that was woken last
	start    time.Time            // all times are counted from here
	epoch    time.Duration        // the time of the variable epoch
	alarmAt  time.Duration        // what the alarm is set for; 0 for none
	alarm    *time.Timer

	eventMu sync.Mutex // is locked before mu, and keeps the changes in order
}

// slotWaiter is one lane that may wait for a slot of a class. The slots' lock guards it.
type slotWaiter struct {
	wake    func() // must not block
	queued  bool
	mayTake bool // it may take the next slot, and is no longer queued
}

func (s *slots) init(sub *Subscription) {
	s.sub = sub
	s.maxUsed = [2]int{sub.MaxInFlight, sub.MaxRetriesInFlight}
	s.minLimit, s.maxLimit = sub.MinInFlight, sub.MaxInFlight+sub.MaxRetriesInFlight
	s.guard.Init(&sub.Policy)
	s.rate = newRateLimiter(sub.Policy.Rate)
	s.start, s.since = time.Now(), -1
	s.epoch = epoch.Sub(s.start)
}

// acquire takes a slot of a class. If there is none, it queues the waiter, which is woken when it may acquire a slot.
func (s *slots) acquire(class int, w *slotWaiter) (ok, probe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	q := &s.queues[class]
	if s.endPromiseLocked(class, w) || q.Empty() {
		if ok, probe = s.acquireLocked(class, now); ok {
			s.wakeLocked(now)
			return true, probe
		}
	}
	if !w.queued {
		w.queued = true
		q.Push(w)
		s.armLocked(now)
	}
	return false, false
}

// endPromiseLocked clears mayTake. It reports whether it was set.
func (s *slots) endPromiseLocked(class int, w *slotWaiter) bool {
	if !w.mayTake {
		return false
	}
	w.mayTake = false
	s.promised[class]--
	return true
}

func (s *slots) acquireLocked(class int, now time.Duration) (ok, probe bool) {
	if !s.hasRoomLocked(class, now) {
		return false, false
	}
	if probe = s.guard.OnlyProbes(); probe {
		s.guard.BeginProbe(now)
	}
	if s.rate != nil {
		s.rate.take(s.start.Add(now))
	}
	s.used[class]++
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	return true, probe
}

// nowLocked returns the time since start, or 0 if nothing depends on it.
func (s *slots) nowLocked() time.Duration {
	if !s.guard.Detects && !s.guard.OnlyProbes() && s.rate == nil && s.minLimit == 0 {
		return 0
	}
	return time.Since(s.start)
}

// hasRoomLocked reports whether acquireLocked would take a slot of a class. It leaves the promised slots free. With a Rate, and while
// only probes may begin, nothing begins before the waiter that has a promise.
func (s *slots) hasRoomLocked(class int, now time.Duration) bool {
	promised := s.promised[firstDelivery] + s.promised[retry]
	switch {
	case s.maxUsed[class] > 0 && s.used[class]+s.promised[class] >= s.maxUsed[class]:
		return false
	case s.rate != nil && (promised > 0 || s.rate.wait(s.start.Add(now)) > 0):
		return false
	case s.guard.OnlyProbes():
		return promised == 0 && s.guard.MayProbe(now)
	default:
		return s.limit == 0 || s.inFlight+promised < s.limit
	}
}

// yield removes a waiter from the queue, because its lane has no message. If mayTake was set, it wakes another lane.
func (s *slots) yield(class int, w *slotWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queued {
		w.queued = false
		s.queues[class].Delete(func(other *slotWaiter) bool { return other == w })
	}
	if s.endPromiseLocked(class, w) {
		s.wakeLocked(s.nowLocked())
	}
}

// wakeLocked wakes, in each class with a free slot, the lane that has waited longest. If a common limit leaves one slot for both
// classes, it wakes only one lane, and the lane that takes or yields the slot wakes the next. It also calls armLocked.
func (s *slots) wakeLocked(now time.Duration) {
	defer s.armLocked(now)
	for range s.queues {
		s.last = 1 - s.last
		if q := &s.queues[s.last]; !q.Empty() && s.hasRoomLocked(s.last, now) {
			w := q.Pop()
			w.queued, w.mayTake = false, true
			s.promised[s.last]++
			w.wake()
			if s.limit > 0 || s.rate != nil || s.guard.OnlyProbes() {
				return
			}
		}
	}
}

// step calls change with the lock and the present time. Then it wakes the lanes for which there are slots now, and reports changes to
// the sink.
func (s *slots) step(change func(now time.Duration)) {
	s.mu.Lock()
	now := s.nowLocked()
	change(now)
	s.wakeLocked(now)
	changed := len(s.guard.Changes) > 0
	s.mu.Unlock()
	if changed {
		s.reportChanges()
	}
}

// reportChanges reports the guard's changes to the sink, in order.
func (s *slots) reportChanges() {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	s.mu.Lock()
	news := s.guard.Changes
	s.guard.Changes = nil
	s.mu.Unlock()
	for _, e := range news {
		s.sub.EmitChange(e.Change, e.Detail, e.Err)
	}
}

// release releases the slot of a message that has ended, and counts its outcome. began is Delivery.began.
func (s *slots) release(class int, probe bool, sig signal, began time.Duration) {
	s.step(func(now time.Duration) {
		s.used[class]--
		s.inFlight--
		if probe {
			s.guard.EndProbe(sig != signalNone)
		}
		s.countLocked(probe, sig, began, now)
	})
}

// endWithoutSlot counts the outcome of a message that had no slot.
func (s *slots) endWithoutSlot(sig signal, began time.Duration) {
	s.step(func(now time.Duration) { s.countLocked(true, sig, began, now) })
}

// countLocked counts the outcome of a message.
func (s *slots) countLocked(probe bool, sig signal, began, now time.Duration) {
	switch {
	case !s.guard.Detects:
	case sig == signalSuccess:
		s.guard.Succeeded(probe, s.beganAt(began), now)
	case sig == signalMessage:
		s.guard.BlamedMessage(probe, s.beganAt(began), now)
	}
	if s.minLimit > 0 {
		s.countInWindowLocked(sig, now)
	}
}

// beganAt returns a time of Delivery.began as the guard counts it, and -1 if it is not known.
func (s *slots) beganAt(began time.Duration) time.Duration {
	if began == 0 || began == waitsForBatch { // no attempt began
		return -1
	}
	return began + s.epoch
}

// at returns a time as the guard counts it, 0 for one before start. now is the present time.
func (s *slots) at(t, now time.Time) time.Duration {
	return max(0, time.Since(s.start)-now.Sub(t))
}

// countInWindowLocked counts an outcome, and adapts the limit at the end of a window.
func (s *slots) countInWindowLocked(sig signal, now time.Duration) {
	switch sig {
	case signalSuccess:
		s.succeeded++
	case signalFailure:
		s.failed++
	case signalNone, signalMessage:
	}
	switch {
	case s.since < 0:
		s.since = now
	case now-s.since >= slotsWindow:
		s.adaptLocked()
		s.since, s.succeeded, s.failed, s.peak = now, 0, 0, s.inFlight
	}
}

// adaptLocked shrinks or grows the limit after a window.
func (s *slots) adaptLocked() {
	all, was := s.succeeded+s.failed, s.limit
	switch {
	case s.failed*2 >= all && (s.failed >= minFailures || was > 0 && s.failed > 0):
		if was == 0 { // half of the peak, not of the configured limit
			s.limit = max(s.minLimit, min(s.peak, s.maxLimit)/2)
			s.guard.Changes.Addf(redeliver.ChangeThrottled, nil, "%d of %d messages failed in a second; at most %d of %d are in flight now, and fewer if that continues",
				s.failed, all, s.limit, s.maxLimit)
			return
		}
		s.limit = max(s.minLimit, was/2)
	case was > 0 && all > 0 && s.failed*10 <= all:
		s.limit += max(1, s.maxLimit/growSteps)
		if s.limit >= s.maxLimit {
			s.limit = 0
			s.guard.Changes.Addf(redeliver.ChangeThrottleOver, nil, "messages succeed again; up to %d are in flight", s.maxLimit)
		}
	}
}

// currentLimit returns how many messages of both classes may be in flight now; 0 means the configured limits.
func (s *slots) currentLimit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard.OnlyProbes() {
		return 1
	}
	return s.limit
}

// countFailure passes a failure to the guard, and reports whether the message must be postponed. began is Delivery.began.
func (s *slots) countFailure(f *guard.Failure, began time.Duration) (postpone bool) {
	f.Began = s.beganAt(began)
	s.step(func(now time.Duration) { postpone = s.guard.CountFailure(f, now) })
	return postpone
}

// pause lets nothing begin for d, because a handler asks for it.
func (s *slots) pause(d time.Duration, err error) {
	s.mu.Lock()
	now := time.Since(s.start) // nowLocked may return 0 before guard.Pause
	s.guard.Pause(d, err, now)
	s.wakeLocked(now)
	s.mu.Unlock()
	s.reportChanges()
}

func (s *slots) countDeadLetter(probe bool) {
	if !s.guard.Detects {
		return
	}
	s.step(func(now time.Duration) { s.guard.DeadLettered(probe, now) })
}

func (s *slots) postpones(f *guard.Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Postpones(f)
}

// armLocked sets the alarm for the time of nextLocked. The caller has found no slot at the time now.
func (s *slots) armLocked(now time.Duration) {
	at := s.nextLocked(now)
	if at <= now || s.alarmAt > now && s.alarmAt <= at { // never, or an earlier alarm is set; that sets the next one
		return
	}
	s.alarmAt = at
	if s.alarm == nil {
		s.alarm = time.AfterFunc(at-now, s.onAlarm)
		return
	}
	s.alarm.Reset(at - now)
}

// nextLocked returns the time at which there may be a slot even if no message ends until then; 0 means never.
func (s *slots) nextLocked(now time.Duration) (at time.Duration) {
	at = s.guard.NextChange()
	if s.rate != nil && !(s.queues[firstDelivery].Empty() && s.queues[retry].Empty()) {
		at = max(at, now+s.rate.wait(s.start.Add(now)))
	}
	return at
}

func (s *slots) onAlarm() {
	s.step(func(time.Duration) { s.alarmAt = 0 })
}
