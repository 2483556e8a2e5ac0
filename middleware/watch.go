package middleware

import (
	"sync"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// watch expires the attempts of one subscription. They start in order, so the list is in
// the order of their deadlines and its head is the first to expire: one timer
// serves all, and a successful attempt costs two short locks.
type watch struct {
	timeout    time.Duration
	mu         sync.Mutex
	head, tail *attempt
	armed      bool
}

// watchOf returns the watch over a subscription's attempts, nil where they have
// no timeout. It belongs to the subscription and not to a Retry, which tests may
// share: a timer that is made in a bubble of testing/synctest ends with that.
func watchOf(sub *delayqueue.Subscription) *watch {
	if sub.Policy.Timeout <= 0 {
		return nil
	}
	w, ok := sub.Watch.Load().(*watch)
	if !ok {
		sub.Watch.CompareAndSwap(nil, &watch{timeout: sub.Policy.Timeout})
		w, _ = sub.Watch.Load().(*watch) // there is one now
	}
	return w
}

func (w *watch) add(a *attempt) {
	w.mu.Lock()
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
	w.mu.Unlock()
}

// remove takes an attempt out whose handler has answered. From then on its over
// does not change: it is nil, or the watch was first.
func (w *watch) remove(a *attempt) {
	w.mu.Lock()
	if a.prev != nil || w.head == a { // it is in the list
		w.unlink(a)
	}
	w.mu.Unlock()
}

func (w *watch) unlink(a *attempt) {
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
		a.over = newOverrun()
		go a.expire(w.timeout)
	}
	w.armed = false
}
