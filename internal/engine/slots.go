package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// How the number of slots follows what fails.
const (
	slotsWindow = time.Second // for which outcomes are counted before something changes
	minFailures = 10          // in a window, before the slots begin to shrink: a few say nothing of a dependency
	growSteps   = 16          // windows in which the slots grow from none to all
)

// Classes of messages, each with slots of its own: without that one class would starve the other.
const (
	firstDelivery = 0
	retry         = 1
	passing       = 2 // which need none: no handler sees them, or they run alone
)

// slots bounds what a subscription has in flight, over all its lanes: first deliveries and retries each by their own limit.
//
// With MinInFlight both shrink together while messages fail: to half when in a second at least half of them did, and by a
// sixteenth up again when nine of ten succeeded. While a guard holds messages back (an outage, a flood of dead letters) only
// one probe at a time gets a slot.
//
// A lane that gets no slot waits in a queue and is rung when there is one: it then has a turn, which it uses or gives back. So
// no lane that comes later is served before it.
//
// Each step reads the clock once, under the lock. If a lane finds no room at one time and the alarm is set by a later one, a
// pause that ends in between would leave the lane without a ring and without an alarm.
type slots struct {
	sub *Subscription

	mu       sync.Mutex
	limits   [2]int // 0: no limit
	used     [2]int
	inFlight int // of both
	guard    *guard
	pace     *pace // nil for none

	minLimit, maxLimit int           // of both classes together; minLimit 0: they do not shrink
	limit              int           // now; 0: they have not shrunk
	peak               int           // of inFlight in this window
	since              time.Duration // the window; negative before the first
	good, bad          int           // in this window

	queues [2]FIFO[*slotWaiter] // by class
	next   int                  // the class that was rung last
	born   time.Time            // time counts from here
	armed  time.Duration        // what the alarm is set for; 0 for none
	alarm  *time.Timer

	telling sync.Mutex // keeps the guard's events in their order
}

// slotWaiter is one lane that may wait for a slot of a class. The slots' lock guards it.
type slotWaiter struct {
	ring   func() // must not block
	queued bool
	turn   bool // it may take the next slot
}

func (s *slots) init(sub *Subscription) {
	s.sub = sub
	s.limits = [2]int{sub.MaxInFlight, sub.MaxRetriesInFlight}
	s.minLimit, s.maxLimit = sub.MinInFlight, sub.MaxInFlight+sub.MaxRetriesInFlight
	s.guard, s.pace = newGuard(&sub.Policy), newPace(sub.Policy.Rate)
	s.born, s.since = time.Now(), -1
}

// take takes a slot of a class. Where there is none, the waiter is queued, and rung when it is its turn.
func (s *slots) take(class int, w *slotWaiter) (ok, probe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nowLocked()
	q := &s.queues[class]
	if w.turn || q.Empty() {
		if ok, probe = s.takeLocked(class, now); ok {
			w.turn = false
			s.wakeLocked(now)
			return true, probe
		}
	}
	w.turn = false
	if !w.queued {
		w.queued = true
		q.Push(w)
		s.armLocked(now)
	}
	return false, false
}

func (s *slots) takeLocked(class int, now time.Duration) (ok, probe bool) {
	if !s.hasRoomLocked(class, now) {
		return false, false
	}
	if s.guard != nil && s.guard.held() {
		if !s.guard.lend(now) {
			return false, false
		}
		probe = true
	}
	if s.pace != nil {
		s.pace.take(s.born.Add(now))
	}
	s.used[class]++
	s.inFlight++
	s.peak = max(s.peak, s.inFlight)
	return true, probe
}

// nowLocked is the time; 0 where nothing depends on it.
func (s *slots) nowLocked() time.Duration {
	if s.guard == nil && s.pace == nil && s.minLimit == 0 {
		return 0
	}
	return time.Since(s.born)
}

// hasRoomLocked reports whether a message of a class may get a slot, as far as is known without taking one.
func (s *slots) hasRoomLocked(class int, now time.Duration) bool {
	switch {
	case s.limits[class] > 0 && s.used[class] >= s.limits[class]:
		return false
	case s.pace != nil && s.pace.wait(s.born.Add(now)) > 0:
		return false
	case s.guard != nil && s.guard.held():
		return s.guard.mayLend(now)
	default:
		return s.limit == 0 || s.inFlight < s.limit
	}
}

// yield gives back a turn for which the lane has no message, and its place in the queue.
func (s *slots) yield(class int, w *slotWaiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queued {
		w.queued = false
		s.queues[class].Delete(func(other *slotWaiter) bool { return other == w })
	}
	if w.turn {
		w.turn = false
		s.wakeLocked(s.nowLocked())
	}
}

// wakeLocked rings the lane that has waited for longest, of each class that has a slot; where the classes share what room there
// is, of one of them in turn. Who takes or yields the slot rings the next. It sets the alarm for when there may be room by itself.
func (s *slots) wakeLocked(now time.Duration) {
	defer s.armLocked(now)
	for range s.queues {
		s.next = 1 - s.next
		if q := &s.queues[s.next]; !q.Empty() && s.hasRoomLocked(s.next, now) {
			w := q.Pop()
			w.queued, w.turn = false, true
			w.ring()
			if s.limit > 0 || s.pace != nil || s.guard != nil && s.guard.held() {
				return
			}
		}
	}
}

// give gives back the slot of a message that ended so.
func (s *slots) give(class int, probe bool, what outcome) {
	s.mu.Lock()
	s.used[class]--
	s.inFlight--
	if probe {
		s.guard.out--
	}
	s.heardLocked(probe, what)
}

// count counts the end of a message that ran alone, without a slot.
func (s *slots) count(what outcome) {
	s.mu.Lock()
	s.heardLocked(true, what)
}

// heardLocked counts an outcome, and unlocks.
func (s *slots) heardLocked(probe bool, what outcome) {
	now := s.nowLocked()
	if s.guard != nil && what == well {
		s.guard.succeeded(probe, now)
	}
	var change *redeliver.SubscriptionChanged
	if s.minLimit > 0 {
		change = s.countLocked(what, now)
	}
	s.wakeLocked(now)
	news := s.guard != nil && len(s.guard.news) > 0
	s.mu.Unlock()
	if change != nil {
		s.sub.Tell(*change)
	}
	if news {
		s.announce()
	}
}

// countLocked counts an outcome, and shrinks or grows the limit at the end of a window. It returns what the sink is to know.
func (s *slots) countLocked(what outcome, now time.Duration) (change *redeliver.SubscriptionChanged) {
	switch what {
	case well:
		s.good++
	case ill:
		s.bad++
	case silent:
	}
	switch {
	case s.since < 0:
		s.since = now
	case now-s.since >= slotsWindow:
		change = s.adaptLocked()
		s.since, s.good, s.bad, s.peak = now, 0, 0, s.inFlight
	}
	return change
}

func (s *slots) adaptLocked() *redeliver.SubscriptionChanged {
	all, was := s.good+s.bad, s.limit
	switch {
	case s.bad*2 >= all && (s.bad >= minFailures || was > 0 && s.bad > 0):
		if was == 0 { // from what was used, not from what might have been
			was = min(s.peak, s.maxLimit)
		}
		began := s.limit == 0
		s.limit = max(s.minLimit, was/2)
		if began {
			return s.changed(redeliver.ChangeThrottled, fmt.Sprintf(
				"%d of %d messages failed in a second; at most %d of %d are in flight now, and fewer if that goes on", s.bad, all, s.limit, s.maxLimit))
		}
	case was > 0 && all > 0 && s.bad*10 <= all:
		s.limit += max(1, s.maxLimit/growSteps)
		if s.limit >= s.maxLimit {
			s.limit = 0
			return s.changed(redeliver.ChangeThrottleOver, fmt.Sprintf("messages succeed again; up to %d are in flight", s.maxLimit))
		}
	}
	return nil
}

func (s *slots) changed(change redeliver.Change, detail string) *redeliver.SubscriptionChanged {
	return &redeliver.SubscriptionChanged{Origin: s.sub.Origin, Group: s.sub.Group, Change: change, Detail: detail}
}

// Limit is how many messages of both classes may be in flight now; 0 for as many as always.
func (s *slots) Limit() int {
	if s.guard == nil && s.minLimit == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guard != nil && s.guard.held() {
		return 1
	}
	return s.limit
}

// judge has the guards judge a failure, passes on what they found, and reports whether the message is to be postponed.
func (s *slots) judge(f *failure) bool {
	s.mu.Lock()
	now := s.nowLocked()
	postpone := s.guard.judge(f, now)
	s.wakeLocked(now)
	s.mu.Unlock()
	s.announce()
	return postpone
}

// buried counts a dead letter.
func (s *slots) buried(d *Delivery) {
	if s.guard == nil {
		return
	}
	s.mu.Lock()
	now := s.nowLocked()
	s.guard.buried(d.isProbe(), now)
	s.wakeLocked(now)
	s.mu.Unlock()
	s.announce()
}

// isOut reports whether there is an outage.
func (s *slots) isOut() bool {
	if s.guard == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.isOut()
}

// armLocked sets the alarm for when there may be room by itself. Its caller has looked for room at the same time, now: whatever
// is possible by then was rung, or waits for a slot that a handler gives back.
func (s *slots) armLocked(now time.Duration) {
	at := s.nextLocked(now)
	if at <= now || s.armed > now && s.armed <= at { // never, or the earlier alarm sets it anew
		return
	}
	s.armed = at
	if s.alarm == nil {
		s.alarm = time.AfterFunc(at-now, s.wake)
		return
	}
	s.alarm.Reset(at - now)
}

// nextLocked is when there may be room by itself; 0 for never.
func (s *slots) nextLocked(now time.Duration) (at time.Duration) {
	if s.guard != nil {
		at = s.guard.next()
	}
	if s.pace != nil && !(s.queues[firstDelivery].Empty() && s.queues[retry].Empty()) {
		at = max(at, now+s.pace.wait(s.born.Add(now)))
	}
	return at
}

func (s *slots) wake() {
	s.mu.Lock()
	s.armed = 0
	s.wakeLocked(s.nowLocked())
	s.mu.Unlock()
	if s.guard != nil {
		s.announce()
	}
}

// announce passes on what the guards found, in the order in which it happened.
func (s *slots) announce() {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	news := s.guard.news
	s.guard.news = nil
	s.mu.Unlock()
	for _, e := range news {
		e.Origin, e.Group = s.sub.Origin, s.sub.Group
		s.sub.Tell(e)
	}
}
