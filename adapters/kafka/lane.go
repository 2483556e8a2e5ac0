package kafka

import (
	"context"
	"runtime"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/delayqueue"
)

// Bounds of what a lane keeps in memory.
const (
	readAhead = 4096        // records read that wait for a slot or their key
	holdSoft  = 1024        // waiting records above which the partition pauses
	holdHard  = 4096        // the same when the last one is due soon
	soon      = time.Second // what is due so soon is read although many wait
)

// lane is one partition in one session. Everything in it belongs to the one
// goroutine that runs it; others speak to it through events.
//
// A record goes: read (and tracked from then on) -> hold, if it waits -> behind
// its key -> ready -> slot -> out -> settled. Offsets are marked up to the
// lowest record that is not settled, so whatever happens on the way, what is
// not settled is read again.
type lane struct {
	r         *reader
	sess      sarama.ConsumerGroupSession
	claim     sarama.ConsumerGroupClaim
	topic     string
	partition int32
	waits     *waitLevel // nil for the origin
	commands  *commands  // that it obeys; nil for the origin
	released  int64      // what was written until then is due, in Unix milliseconds
	slots     chan struct{}

	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc

	slab   slab
	track  tracker
	hold   *delayqueue.Hold[*entry]
	keys   map[uint64]*entry       // the last of each key that is under way
	lines  *lines                  // in their place, where a key waits for its failures
	box    mailbox                 // for lines
	behind map[*entry]struct{}     // wait in hand for the first of their line
	ready  delayqueue.FIFO[*entry] // in the order in which they were read, or came due
	freed  lowest                  // were behind their key, and are not any more
	chosen *entry                  // the one that gets the next slot
	next   *entry                  // has a slot and waits for somebody to take it

	begun    uint64 // one above the highest number that was handed out, written elsewhere or dropped
	draining bool
	full     bool // what waits on the levels is as much as there may be: nothing new begins
	slot     bool // a slot without an entry yet
	backlog  int  // read, not held, not in flight
	weight   int  // bytes of what was read and is not in flight
	flight   *delayqueue.Flight[*entry]
	moved    bool // the mark has moved since it was told
	paused   bool
	nap      nap
	timer    *time.Timer

	from      int64        // where it began
	beginning *inscription // commits from where the partition had no offset; nil for none
	note      string       // stands beside the offsets that are marked, see note
	care      *caution     // nil once nothing in the partition is suspect

	uncounted bool // crashes are not: nothing of caution and turn is done
}

func newLane(r *reader, sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) *lane {
	l := &lane{
		r: r, sess: sess, claim: claim, topic: claim.Topic(), partition: claim.Partition(),
		slots: r.first, keys: make(map[uint64]*entry),
		flight: delayqueue.NewFlight[*entry](),
		timer:  time.NewTimer(time.Hour),
	}
	if w, ok := r.levels[l.topic]; ok {
		l.waits, l.slots = &w, r.retries
		l.hold = delayqueue.NewHold[*entry](holdMost)
		l.nap = newNap(w.level, r.wait)
		l.commands = &commands{}
	}
	l.flight.Bound(&r.sub.Throttle)
	l.ctx, l.cancel = r.lifetime()
	return l
}

// run reads the partition until it is revoked or the session ends, and then
// waits for what is in flight.
func (l *lane) run() {
	r := l.r
	release := r.own(l.topic, l.partition)
	defer release()
	defer l.timer.Stop()
	defer l.unload()
	defer r.sub.Carry(l.flight.Load)()
	over := l.sess.Context().Done()
	for {
		// First: what was nacked by the end of the session comes back, and no
		// later one of its key may begin before.
		select {
		case <-over:
			l.drain(true)
			return
		default:
		}
		busy, open := l.read()
		if !open {
			break
		}
		busy = l.collect() || busy
		busy = l.tend() || busy
		l.balance()
		busy = l.send() || busy
		if l.paused {
			l.balance() // what has begun weighs nothing any more, and nothing else may come to wake the lane
		}
		busy = l.poll() || busy
		l.count()
		if busy {
			continue
		}
		// Handlers that answer at once do so while this goroutine steps aside.
		runtime.Gosched()
		if l.poll() {
			continue
		}
		if !l.block(over) {
			break
		}
	}
	l.drain(l.sess.Context().Err() != nil)
}

// read takes what the broker has sent, without waiting. open is false when the
// partition was revoked.
func (l *lane) read() (busy, open bool) {
	for range 64 {
		if !l.listens() {
			break
		}
		select {
		case m, ok := <-l.claim.Messages():
			if !ok {
				return busy, false
			}
			l.take(m)
			busy = true
		default:
			return busy, true
		}
	}
	return busy, true
}

// send hands out what is ready, without waiting.
func (l *lane) send() (busy bool) {
	if l.hold != nil {
		now := time.Now()
		l.obey(now)
		l.release(now)
	}
	for l.prepare() {
		select {
		case l.r.out <- l.next.msg:
			l.sent()
			busy = true
		default:
			return busy
		}
	}
	return busy
}

// prepare makes sure that next stands, if something is ready and a slot is free.
// Workers take all there is, so with them nothing is ever left to stand.
func (l *lane) prepare() bool {
	for l.next == nil {
		if l.r.sub.Gate.Closed() {
			return false
		}
		if !l.choose() {
			l.flight.Yield()
			return false
		}
		if !l.begins() {
			return false
		}
		e := l.chosen
		l.chosen = nil
		l.backlog--
		l.lift(e)
		l.flight.Begin(e)
		if l.canceled(e) {
			l.goesOn(e)
			continue
		}
		if e.then != toHandler {
			l.pass(e)
		} else if e.crashes > 0 {
			l.bury(e)
		} else if l.unpack(e) {
			l.next = e
			if l.r.native != nil {
				l.sent()
			}
			continue
		}
		l.goesOn(e)
	}
	return true
}

// goesOn notes that a record will be settled, so that a drain owes what stands below it.
func (l *lane) goesOn(e *entry) { l.begun = max(l.begun, e.number+1) }

// choose says which entry gets the next slot. Those that waited for their key
// come first on a level: they were read before the others, and the lowest unsettled
// record, for which a partition that is too far ahead waits, may be one of them. In
// the origin the lowest comes first.
func (l *lane) choose() bool {
	if l.chosen != nil {
		return true
	}
	if len(l.behind) > 0 && !l.draining {
		l.makeRoom()
	}
	if len(l.freed) > 0 && l.reach(l.freed[0]) && l.lowest(l.freed[0]) {
		l.chosen = l.freed.pop()
		return true
	}
	for l.chosen == nil && !l.ready.Empty() && l.reach(l.ready.Peek()) && !l.bounded() {
		if e := l.ready.Pop(); l.admit(e) {
			l.chosen = e
		}
	}
	return l.chosen != nil
}

// lowest tells whether an entry that waited for its key goes before those that are
// ready. In the origin the lowest does: a few keys that are always freed first would
// run ahead of all others, as far as they may, and no batch could be filled then.
func (l *lane) lowest(e *entry) bool {
	return l.hold != nil || l.ready.Empty() || e.number < l.ready.Peek().number
}

// count says how many records were read that are not in flight.
func (l *lane) count() {
	n := l.backlog
	if l.hold != nil {
		n += l.hold.Len()
	}
	l.flight.Holds(n)
}

func (l *lane) sent() {
	e := l.next
	l.next = nil
	l.goesOn(e)
	if l.r.native != nil {
		l.r.native.give(e)
		return
	}
	e.handed = true
	l.r.handed.Add(1)
	l.flight.Handed(e)
}

// poll settles what was answered since the last look.
func (l *lane) poll() (busy bool) {
	busy = l.flight.Poll(l.end)
	l.mark()
	return busy
}

// block waits until something can be done. It is false when the session is over
// or the partition revoked.
func (l *lane) block(over <-chan struct{}) bool {
	var in <-chan *sarama.ConsumerMessage
	if l.listens() {
		in = l.claim.Messages()
	}
	var slots chan<- struct{}
	var opened, more, calm, mail, commands <-chan struct{}
	if l.commands != nil {
		commands = l.commands.replaced
	}
	if l.care != nil {
		mail = l.care.bell
	}
	out := l.r.out
	if l.next == nil {
		out = nil
		l.flight.Watch()
		if l.choose() {
			switch {
			case l.r.sub.Gate.Closed():
				opened = l.r.sub.Gate.Opened()
			case l.care != nil && !l.care.allows(l.chosen): // there will be mail
			case !l.slot:
				slots = l.slots
			default:
				calm, more = l.room()
			}
		}
	}
	l.timer.Reset(l.patience(time.Now()))
	select {
	case m, ok := <-in:
		if !ok {
			return false
		}
		l.take(m)
	case out <- l.peek():
		l.sent()
	case slots <- struct{}{}:
		l.slot = true
	case <-l.flight.Bell():
		l.poll()
	case <-opened:
	case <-more:
	case <-calm:
	case <-mail:
		l.tend()
	case <-l.box.bell:
		l.collected()
	case <-commands: // see obey
	case <-l.timer.C:
		l.flight.Watch()
	case <-over:
		return false
	}
	return true
}

// patience is how long a blocked lane may sleep.
func (l *lane) patience(now time.Time) time.Duration {
	d := time.Hour
	if l.flight.Unwatched() || l.full {
		d = delayqueue.Glance
	}
	if l.care != nil {
		if at, ok := l.care.deadline(); ok {
			d = min(d, at.Sub(now))
		}
		if l.care.unasked(l.chosen) {
			d = min(d, delayqueue.Glance)
		}
	}
	if l.hold != nil {
		if at, ok := l.hold.Next(); ok {
			d = min(d, at.Sub(now))
		}
		switch {
		case l.paused && l.nap.asleep(now):
			d = min(d, l.nap.until.Sub(now))
		case l.paused:
			// Before anything was held Last is zero, and the difference the least there is: less than that would be much.
			d = min(d, max(delayqueue.Glance, l.hold.Last().Add(-soon).Sub(now)))
		case l.nap.every > 0:
			d = min(d, delayqueue.Glance)
		}
	}
	return max(0, d)
}

// wants tells whether the lane has room for more records.
func (l *lane) wants() bool {
	if l.hold == nil {
		return l.backlog < readAhead && !l.heavy()
	}
	return l.backlog < readAhead && (l.hold.Len() < holdSoft && !l.heavy() || l.hold.Len() < holdHard && time.Until(l.hold.Last()) < soon)
}

// roomy is wants with some distance, so that a lane does not pause and resume
// for every record. Of what is due soon the distance is small: what is read at
// one go delays what is due meanwhile.
func (l *lane) roomy() bool {
	if l.hold == nil {
		return l.backlog <= readAhead/2 && l.light()
	}
	return l.backlog <= readAhead/2 && (l.hold.Len() < holdSoft/4 && l.light() || l.hold.Len() < holdHard/8*7 && time.Until(l.hold.Last()) < soon)
}

// listens tells whether the lane reads. It always does: a partition that is not
// read holds up the fetches of all others from the same broker, and a
// cooperative revocation shows only behind what is under way. A full lane pauses
// instead, and what comes after that is a fetch or two.
func (l *lane) listens() bool { return l.hold == nil || !l.hold.Full() }

// balance pauses the partition when the lane is full, or naps, and resumes it
// when there is room.
func (l *lane) balance() {
	switch {
	case l.paused:
		if l.roomy() && !l.nap.asleep(time.Now()) {
			l.r.group.Resume(map[string][]int32{l.topic: {l.partition}})
			l.paused = false
			l.nap.wake(time.Now())
		}
	case !l.wants():
		l.pause()
	case l.nap.tired(l.claim.HighWaterMarkOffset()):
		l.pause()
		l.nap.sleep(time.Now())
	}
}

func (l *lane) pause() {
	l.r.group.Pause(map[string][]int32{l.topic: {l.partition}})
	l.paused = true
}

// mark tells the group how far it may commit.
func (l *lane) mark() {
	if l.moved && (l.care == nil || l.care.blind) {
		l.replaceBeginning()
		l.sess.MarkOffset(l.topic, l.partition, l.track.mark, l.note)
		l.moved = false
	}
}

// reach tells whether a record may be handed out: a partition is never more than
// so far ahead of its lowest unsettled record. What waits in a hold is unsettled
// by nature and has a bound of its own.
func (l *lane) reach(e *entry) bool {
	return l.hold != nil || int(e.number-l.track.first) < spanFactor*l.r.client.cfg.MaxInFlight
}

// end takes an entry out of flight.
func (l *lane) end(e *entry, how delayqueue.Ending) {
	if how == delayqueue.Nacked && l.flight.Has(e) {
		l.nack(e)
		return
	}
	if !l.flight.Land(e, how) {
		return // it was given up
	}
	l.unslot(e)
	if e.handed {
		l.r.handed.Add(-1)
	}
	if l.care != nil {
		l.care.landed(l.track.offset(e.number), how != delayqueue.Abandoned)
	}
	if how == delayqueue.Abandoned {
		// The mark stays below it, so all above comes again and is owed nothing.
		l.begun = min(l.begun, e.number)
	} else {
		l.moved = l.track.settle(e.number) || l.moved
	}
	if e.card != nil {
		l.left(e, how)
	}
	l.free(e)
}
