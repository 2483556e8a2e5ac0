package delayqueue

import (
	"hash/maphash"
	"time"

	"github.com/redeliver/redeliver"
)

// Decide asks the policy about the answer of this delivery's attempt, or of a message
// that failed without one, and the guards that the policy asks for: they count the
// failure, so it must be called once for each, by who does then what it says.
func (d *Delivery) Decide(err error, now time.Time) *redeliver.Decision {
	st := d.State()
	dec := d.Sub.decide(st, err, now)
	if d.Sub.Throttle.guard != nil && d.weigh(&dec, &st, err, now) {
		dec = d.Sub.postpone(st, err, now)
	}
	return &dec
}

// weigh has the guards judge a failure under the state before, and reports whether the
// message is to be postponed.
func (d *Delivery) weigh(dec *redeliver.Decision, before *redeliver.State, err error, now time.Time) (postpone bool) {
	f := failure{
		err: err, id: maphash.String(keySeed, before.ID), probe: d.Alone || d.isProbe(),
		ill: tells(dec) == ill, sparable: dec.Sparable(),
	}
	if f.ill {
		f.print, f.key = dec.State.Cause(), d.keyHash(before.ID)
		f.counted, f.since = before.Attempts > 0 && before.PostponedSince.IsZero(), now.Sub(before.FirstFailed)
	}
	return d.Sub.Throttle.judge(&f)
}

// postpone decides anew about a failure under a state, as about one that is an outage's.
func (s *Subscription) postpone(st redeliver.State, err error, now time.Time) redeliver.Decision {
	rule := s.rule(&st)
	dec := rule.Postpone(st, err, now)
	dec.State.Policy = s.Fingerprint()
	return dec
}

// judge has the guards judge a failure, tells the sink what they found, and reports
// whether the message is to be postponed.
func (t *Throttle) judge(f *failure) bool {
	t.mu.Lock()
	postpone := t.guard.judge(f, t.guard.now())
	t.serve()
	t.arm()
	t.mu.Unlock()
	t.announce()
	return postpone
}

// buried tells the guards of a dead letter.
func (t *Throttle) buried(d *Delivery) {
	t.mu.Lock()
	t.guard.buried(d.Alone || d.isProbe(), t.guard.now())
	t.arm()
	t.mu.Unlock()
	t.announce()
}

// isOut tells whether there is an outage.
func (t *Throttle) isOut() bool {
	if t.guard == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guard.isOut()
}

// Held tells whether nothing new may begin but a probe.
func (t *Throttle) Held() bool {
	if t.guard == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.guard.held()
}

// endProbe is the end of a probe whose message stays in flight, to wait in place.
func (t *Throttle) endProbe(d *Delivery) {
	if t.guard != nil && d.permit().Swap(false) {
		t.give(0, 1)
	}
}

// resume waits until a message may go on that has waited in place, with the room that it
// has; while there is an outage, until it is the one to be a probe. It is false when the
// message was lost to this process before.
func (t *Throttle) resume(d *Delivery) bool {
	if !t.Held() {
		return true
	}
	t.mu.Lock()
	t.seq++
	w := &waiter{room: make(chan struct{}), seq: t.seq}
	t.resumers.Push(w)
	t.serve()
	t.arm()
	t.mu.Unlock()
	select {
	case <-w.room:
		if w.probe {
			d.permit().Store(true)
		}
		return true
	case <-d.lost():
		t.leave(w)
		return false
	}
}

// leave is quit for who has room in any case.
func (t *Throttle) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !w.has() {
		t.resumers.Delete(func(other *waiter) bool { return other == w })
	} else if w.probe {
		t.guard.out--
		t.serve()
	}
}

// arm sets the one timer for when something changes by itself. The caller holds mu.
func (t *Throttle) arm() {
	now := t.guard.now()
	at := t.guard.next()
	switch {
	case at == 0 || t.armed > now && t.armed <= at:
		return // what it is set for comes first, and sets it anew
	case at <= now && t.line.Empty() && t.resumers.Empty():
		return // who comes next is served at once
	case at <= now: // it has come since those that wait were looked at
		at = now
	}
	t.armed = at
	if t.alarm == nil {
		t.alarm = time.AfterFunc(at-now, t.wake)
		return
	}
	t.alarm.Reset(at - now)
}

func (t *Throttle) wake() {
	t.mu.Lock()
	t.armed = 0
	t.serve()
	t.arm()
	t.mu.Unlock()
	t.announce()
}

// announce tells the sink what there is to tell, in the order in which it happened.
func (t *Throttle) announce() {
	t.telling.Lock()
	defer t.telling.Unlock()
	t.mu.Lock()
	news := t.guard.news
	t.guard.news = nil
	t.mu.Unlock()
	for _, e := range news {
		e.Origin, e.Group = t.sub.Origin, t.sub.Group
		t.sub.Tell(e)
	}
}
