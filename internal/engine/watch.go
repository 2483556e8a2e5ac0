package engine

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// watch ends the attempts of one subscription that exceed its timeout. An attempt is added when it begins, so the list is in the
// order of deadlines, and one timer serves all attempts. A successful attempt locks mu twice, for a short time.
type watch struct {
	timeout    time.Duration
	mu         sync.Mutex
	head, tail *Delivery
	armed      bool // the timer is set
}

// watchOf returns the watch of a subscription, or nil if attempts have no timeout. It is created with the first
// attempt, because a timer belongs to the testing/synctest bubble in which it is created.
func watchOf(sub *Subscription) *watch {
	if sub.Policy.Timeout <= 0 {
		return nil
	}
	w := sub.watch.Load()
	if w == nil {
		sub.watch.CompareAndSwap(nil, &watch{timeout: sub.Policy.Timeout})
		w = sub.watch.Load()
	}
	return w
}

func (w *watch) add(d *Delivery) {
	at := time.Since(epoch) // before the lock, for which all workers wait; if another worker gets it first, this attempt ends microseconds late
	w.mu.Lock()
	d.at = at
	w.appendLocked(d)
	w.mu.Unlock()
}

func (w *watch) appendLocked(d *Delivery) {
	d.answered = false // it is set if the attempt waited for a batch
	d.prev = w.tail
	if w.tail == nil {
		w.head = d
	} else {
		w.tail.next = d
	}
	w.tail = d
	if !w.armed {
		w.armed = true
		time.AfterFunc(w.timeout, w.tick)
	}
}

// remove removes an attempt whose handler has answered. From then on d.over does not change.
func (w *watch) remove(d *Delivery) {
	w.mu.Lock()
	w.unlinkLocked(d)
	d.extension.stop()
	d.answered = true
	w.mu.Unlock()
}

// unlinkLocked removes an attempt from the list. It reports whether it was there.
func (w *watch) unlinkLocked(d *Delivery) bool {
	if d.prev == nil && w.head != d {
		return false
	}
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		w.head = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		w.tail = d.prev
	}
	d.prev, d.next = nil, nil
	return true
}

// tick ends the attempts whose time is over, and sets the timer for the next.
func (w *watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(epoch)
	for d := w.head; d != nil; d = w.head {
		if left := d.at + w.timeout - now; left > 0 {
			time.AfterFunc(left, w.tick)
			return
		}
		w.unlinkLocked(d)
		w.endLocked(d)
	}
	w.armed = false
}

// endLocked ends an attempt whose time is over. If failed messages wait in their source, it settles the message only when the
// handler is stuck: until then the next attempt must not run beside this one.
func (w *watch) endLocked(d *Delivery) {
	timeout := d.timeoutLocked()
	if !d.sub.Blocking && !d.sub.WaitsInSource {
		if d.takeOverLocked() {
			go d.settleExpired(timeout)
		}
		return
	}
	d.warned = true
	go d.Expire(&redeliver.TimeoutError{After: timeout})
	time.AfterFunc(StuckAfter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !d.answered && d.takeOverLocked() {
			go d.settleExpired(timeout)
		}
	})
}

// overtime ends one attempt now, unless its handler has answered or it has already ended.
func (d *Delivery) overtime() {
	if d.w == nil {
		return
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.w.unlinkLocked(d) || d.extension != nil && d.runsLocked() {
		d.w.endLocked(d)
	}
}
