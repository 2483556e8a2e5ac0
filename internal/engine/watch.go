package engine

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// watch ends the attempts of one subscription that exceed their time. Its list is in the order of their ends, so one timer serves
// all attempts. A successful attempt locks mu twice, for a short time.
type watch struct {
	timeout    time.Duration
	mu         sync.Mutex
	head, tail *Delivery
	armed      bool // the timer is set
}

// newWatch returns the watch of a policy, or nil if attempts have no timeout.
func newWatch(p *redeliver.Policy) *watch {
	if p.Timeout <= 0 {
		return nil
	}
	return &watch{timeout: p.Timeout}
}

// add starts the clock of an attempt.
func (w *watch) add(d *Delivery) {
	at := time.Since(epoch) // before the lock, for which all workers wait
	w.mu.Lock()
	d.began = at
	w.insertLocked(d, at+w.timeout)
	w.mu.Unlock()
}

// insertLocked puts an attempt into the list. Nearly all belong at the tail; an extended one may end later.
func (w *watch) insertLocked(d *Delivery, ends time.Duration) {
	d.ends, d.prev, d.next = ends, w.tail, nil
	for d.prev != nil && d.prev.ends > ends {
		d.prev, d.next = d.prev.prev, d.prev
	}
	if d.prev == nil {
		w.head = d
	} else {
		d.prev.next = d
	}
	if d.next == nil {
		w.tail = d
	} else {
		d.next.prev = d
	}
	if !w.armed {
		w.armed = true
		time.AfterFunc(w.timeout, w.tick)
	}
}

// remove removes an attempt whose handler has answered. From then on d.late does not change.
func (w *watch) remove(d *Delivery) {
	w.mu.Lock()
	w.unlinkLocked(d)
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

// tick ends the attempts whose time is over, and sets the timer for the next. The timer is set for at most the timeout: an
// attempt that begins meanwhile may end before one that was extended.
func (w *watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(epoch)
	for d := w.head; d != nil; d = w.head {
		if left := d.ends - now; left > 0 {
			time.AfterFunc(min(left, w.timeout), w.tick)
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
	timeout := d.ends - d.began
	if !d.sub.KeepsPlace && !d.sub.WaitsInSource {
		if d.takeOverLocked() {
			go d.settleExpired(timeout)
		}
		return
	}
	d.timedOut = true
	go d.Expire(&redeliver.TimeoutError{After: timeout})
	time.AfterFunc(StuckAfter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !d.answered && d.takeOverLocked() {
			go d.settleExpired(timeout)
		}
	})
}

// endWithBatch ends an attempt that the watch has not ended yet, although its batch is over.
func (d *Delivery) endWithBatch() {
	w := d.sub.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unlinkLocked(d) {
		w.endLocked(d)
	}
}
