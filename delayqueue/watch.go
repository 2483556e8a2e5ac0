package delayqueue

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// watch expires the attempts of one subscription. They start in order, so the list is in
// the order of their deadlines and its head is the first to expire: one timer
// serves all, and a successful attempt costs two short locks.
type watch struct {
	timeout    time.Duration
	mu         sync.Mutex
	head, tail *Attempt
	armed      bool
}

// watchOf returns the watch over a subscription's attempts, nil where they have
// no timeout. It is made with the first attempt: a timer that is made in a
// bubble of testing/synctest ends with that.
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

func (w *watch) add(a *Attempt) {
	w.mu.Lock()
	w.append(a)
	w.mu.Unlock()
}

// append is add for who holds the lock.
func (w *watch) append(a *Attempt) {
	a.answered = false // what was gathered begins again
	a.prev = w.tail
	if w.tail == nil {
		w.head = a
	} else {
		w.tail.next = a
	}
	w.tail = a
	if !w.armed {
		w.armed = true
		time.AfterFunc(w.timeout, w.tick)
	}
}

// remove takes an attempt out whose handler has answered. From then on its over
// does not change: it is nil, or the watch was first.
func (w *watch) remove(a *Attempt) {
	w.mu.Lock()
	w.drop(a)
	w.mu.Unlock()
}

// drop is remove for who holds the lock.
func (w *watch) drop(a *Attempt) {
	if a.prev != nil || w.head == a { // it is in the list
		w.unlink(a)
	}
	a.answered = true
}

func (w *watch) unlink(a *Attempt) {
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		w.head = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	} else {
		w.tail = a.prev
	}
	a.prev, a.next = nil, nil
}

// tick expires what is over and sleeps until the next one is.
func (w *watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(epoch)
	for a := w.head; a != nil; a = w.head {
		if left := a.at + w.timeout - now; left > 0 {
			time.AfterFunc(left, w.tick)
			return
		}
		w.unlink(a)
		if a.d.Sub.Blocking {
			w.warn(a)
			continue
		}
		a.over = newOverrun()
		go a.expire(w.timeout)
	}
	w.armed = false
}

// overtime is warn for one attempt, unless it has answered or was warned.
func (a *Attempt) overtime() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.prev != nil || a.w.head == a { // it is in the list
		a.w.unlink(a)
		a.w.warn(a)
	}
}

// warn ends the context of an attempt whose message is to keep its place, and
// takes the message out of the handler's hands only when it is stuck. The caller
// holds mu.
func (w *watch) warn(a *Attempt) {
	a.warned = true
	go a.Expire(&redeliver.TimeoutError{After: w.timeout})
	time.AfterFunc(StuckAfter, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !a.answered {
			a.over = newOverrun()
			go a.expire(w.timeout)
		}
	})
}
