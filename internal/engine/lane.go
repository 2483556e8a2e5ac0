package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

var noDeadline time.Time

// maxRound is how many messages a lane reads before it does everything else once.
const maxRound = 256

// slabSize is how many entries are allocated at once.
const slabSize = 32

// maxSlabRecord is the size of a record, in bytes, above which the next one gets an allocation of its own: one record in hand
// keeps all of its slab in memory.
const maxSlabRecord = 4 << 10

// lane runs one source. Everything in it belongs to the one goroutine that runs it, but for what mu guards.
//
// A message goes: read -> waits, if it is not due -> takes the turn of its key, or stands behind the message that has it ->
// ready -> begins, with a slot -> ends -> settled.
type lane[R any] struct {
	e   *Engine[R]
	src driver.Source[R]
	opt LaneOptions[R]

	ctx      context.Context // its end: the messages are lost to this process
	cancel   context.CancelCauseFunc
	lost     <-chan struct{} // the source's
	draining chan struct{}   // closed when the lane begins nothing more

	slab        []entry[R]
	large       bool      // the latest record is larger than maxSlabRecord
	first, last *entry[R] // all in hand, in the order of their arrival
	inHand      int
	bytes       int
	held        int                  // wait for their time, or stand behind another message of their key
	waits       *Hold[*entry[R]]     // with those that were abandoned meanwhile
	keys        map[uint64]*entry[R] // the last message of each key that has begun or is ready
	ready       [3]FIFO[*entry[R]]   // by entry.queue
	refused     []*entry[R]          // by a gater, until something was posted
	running     int
	waiters     [2]slotWaiter
	waiting     [2]bool // the waiter stands in the queue for slots, or has a turn
	lastClass   int
	accepted    int
	settled     bool // since the last Commit
	timer       *time.Timer

	bell     chan struct{} // rung when there is something to do
	runCount atomic.Int64  // running and inHand, for others
	allCount atomic.Int64
	drainEnd atomic.Int64 // when what is in flight is given up, counted from epoch; 0 while the lane does not drain

	mu     sync.Mutex
	ended  []*entry[R]
	posted []func()
	closed bool // nobody reads them any more
	spare  []*entry[R]
}

func newLane[R any](values context.Context, e *Engine[R], src driver.Source[R], opt LaneOptions[R]) *lane[R] {
	l := &lane[R]{
		e: e, src: src, opt: opt, lost: src.Lost(), draining: make(chan struct{}), waits: NewHold[*entry[R]](1 << 30),
		keys: make(map[uint64]*entry[R]), bell: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), accepted: -1,
	}
	l.ctx, l.cancel = context.WithCancelCause(values)
	for i := range l.waiters {
		l.waiters[i].ring = l.ring
	}
	return l
}

// ring wakes the lane's goroutine.
func (l *lane[R]) ring() {
	select {
	case l.bell <- struct{}{}:
	default:
	}
}

// Post implements [driver.Lane].
func (l *lane[R]) Post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.posted = append(l.posted, f)
	l.ring()
	return true
}

// report says that a message has ended. The lane's goroutine does the rest; after the lane's end the caller does.
func (l *lane[R]) report(e *entry[R]) {
	l.mu.Lock()
	if !l.closed {
		l.ended = append(l.ended, e)
		if len(l.ended) == 1 {
			l.ring()
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.releaseLate(e)
}

// load is what the lane has in hand.
func (l *lane[R]) load() redeliver.Load {
	running := int(l.runCount.Load())
	return redeliver.Load{InFlight: running, Held: max(0, int(l.allCount.Load())-running)}
}

// run reads the source until ctx ends, it closes or it is lost, and then waits for what is in flight.
func (l *lane[R]) run(ctx context.Context) {
	defer l.timer.Stop()
	defer l.e.sub.Carry(l.load)()
	defer l.e.sub.Gate.notify(l.ring)()
	if l.e.sub.Turn != nil {
		defer l.e.sub.Turn.notify(l.ring)()
	}
	messages := l.src.Messages()
	for {
		closed := l.readMessages(messages)
		l.readMail()
		l.begin(time.Now())
		l.passOnSettled()
		l.accept()
		if closed {
			break
		}
		l.timer.Reset(l.sleep(time.Now()))
		select {
		case rec, ok := <-messages:
			if ok {
				l.admit(rec)
				continue
			}
		case <-l.bell:
			continue
		case <-l.timer.C:
			continue
		case <-l.lost:
		case <-ctx.Done():
		}
		break
	}
	l.drain(messages)
}

// isOver reports whether the drain timeout is over. The lanes of a subscriber that closes come to that at one time, and each
// notices it a moment later: whoever asks about a message must not go on with one of a lane that has not noticed yet.
func (l *lane[R]) isOver() bool {
	end := l.drainEnd.Load()
	return end != 0 && time.Since(epoch) >= time.Duration(end)
}

// isLost reports whether nothing of the source can be settled any more.
func (l *lane[R]) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return l.ctx.Err() != nil
	}
}

// readMessages admits what the source has, without waiting. It reports whether the source has closed.
func (l *lane[R]) readMessages(messages <-chan R) (closed bool) {
	for range maxRound {
		select {
		case rec, ok := <-messages:
			if !ok {
				return true
			}
			l.admit(rec)
		default:
			return false
		}
	}
	l.ring() // there may be more
	return false
}

// readMail does what others have reported and posted.
func (l *lane[R]) readMail() {
	l.mu.Lock()
	ended, posted := l.ended, l.posted
	l.ended, l.posted = l.spare, nil
	l.mu.Unlock()
	for _, e := range ended {
		l.finish(e)
	}
	clear(ended)
	l.spare = ended[:0]
	for _, f := range posted {
		f()
	}
	if len(posted) > 0 {
		l.retryRefused()
	}
}

// retryRefused makes ready again what a gater has refused.
func (l *lane[R]) retryRefused() {
	for class := range l.ready {
		q := &l.ready[class]
		var again FIFO[*entry[R]]
		for _, e := range l.refused {
			if e.queue() == class && e.phase == entryRefused {
				e.phase = entryReady
				again.Push(e)
			}
		}
		if again.Empty() {
			continue
		}
		for !q.Empty() { // they were first
			again.Push(q.Pop())
		}
		*q = again
	}
	clear(l.refused)
	l.refused = l.refused[:0]
}

// admit takes a record in hand.
func (l *lane[R]) admit(rec R) {
	e := l.parse(rec)
	if e == nil {
		return
	}
	if !e.Until.IsZero() && e.Until.After(time.Now()) {
		if e.InPlace && !l.takeTurn(e) {
			l.chain(e) // passTurn looks at Until
			return
		}
		l.wait(e)
		return
	}
	l.line(e)
}

// chain notes that an entry stands behind another one of its key.
func (l *lane[R]) chain(e *entry[R]) {
	e.phase = entryChained
	l.held++
}

// parse makes the entry of a record; nil for one that the engine passes over.
func (l *lane[R]) parse(rec R) *entry[R] {
	if len(l.slab) == 0 {
		n := slabSize
		if l.large {
			n = 1
		}
		l.slab = make([]entry[R], n)
	}
	e := &l.slab[0]
	e.Record = rec
	l.accepted = -1 // the source hears again what is left, also where this is passed over
	if err := l.src.Parse(&e.Message); err != nil {
		*e = entry[R]{}
		return nil
	}
	l.slab = l.slab[1:]
	if l.large = e.Size > maxSlabRecord; l.large {
		l.slab = nil
	}
	e.lane, e.Owner = l, e
	e.rested.Store(true)
	e.prev = l.last
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.inHand++
	l.bytes += e.Size
	l.allCount.Store(int64(l.inHand))
	return e
}

// remove takes an entry out of the lane.
func (l *lane[R]) remove(e *entry[R]) {
	if e.phase == entryGone {
		return
	}
	if e.phase == entryChained || e.phase == entryWaits {
		l.held--
	}
	e.phase = entryGone
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	e.prev, e.next = nil, nil
	l.inHand--
	l.bytes -= e.Size
	l.allCount.Store(int64(l.inHand))
}

// wait keeps an entry until its time has come.
func (l *lane[R]) wait(e *entry[R]) {
	e.phase = entryWaits
	l.held++
	if l.waits.Len() > 2*l.held+slabSize { // most were abandoned: drop them, not only when they would have been due
		l.waits.Delete(func(e *entry[R]) bool { return e.phase != entryWaits })
	}
	l.waits.Put(e.Until, e)
}

// line makes an entry ready whose time has come, or puts it behind the message that has the turn of its key.
func (l *lane[R]) line(e *entry[R]) {
	if l.takeTurn(e) {
		l.push(e)
	} else {
		l.chain(e)
	}
}

// push makes an entry ready.
func (l *lane[R]) push(e *entry[R]) {
	e.phase = entryReady
	l.ready[e.queue()].Push(e)
}

// takeTurn reports whether an entry has the turn of its key; else it stands behind the last one that wants it.
func (l *lane[R]) takeTurn(e *entry[R]) bool {
	if e.Key == 0 || e.keyed {
		return true
	}
	tail := l.keys[e.Key]
	l.keys[e.Key] = e
	if tail != nil {
		tail.behind = e
		return false
	}
	e.keyed = true
	return true
}

// passTurn gives the turn of an entry's key to the next one.
func (l *lane[R]) passTurn(e *entry[R]) {
	for e.keyed {
		e.keyed = false
		next := e.behind
		e.behind = nil
		if next == nil {
			delete(l.keys, e.Key)
			return
		}
		next.keyed = true
		if next.phase != entryGone {
			l.held--
			if !next.Until.IsZero() && next.Until.After(time.Now()) { // it came again while it waits in place
				l.wait(next)
			} else {
				l.push(next)
			}
			return
		}
		e = next
	}
}

// begin has everything begin that is due and may.
func (l *lane[R]) begin(now time.Time) {
	for {
		e, ok := l.waits.Pop(now)
		if !ok {
			break
		}
		if e.phase == entryWaits { // else it was abandoned meanwhile
			l.held--
			l.line(e)
		}
	}
	sub := l.e.sub
	blocked := [3]bool{}
	for l.opt.Exclusive || !sub.Gate.Closed() { // its turn was given while the gate was open, and others wait for its end
		class, e := l.choose(blocked)
		if e == nil {
			break
		}
		switch l.mayBegin(e) {
		case Begins:
			l.ready[class].Pop()
			l.start(e)
		case NotYet:
			l.ready[class].Pop()
			e.phase = entryRefused
			l.refused = append(l.refused, e)
		case NothingYet:
			blocked[class] = true
		case Later:
			l.ready[class].Pop()
			l.wait(e)
		case Outdated:
			l.ready[class].Pop()
			l.src.Settle(&e.Message)
			l.settled = true
			l.remove(e)
			l.passTurn(e)
		}
	}
	for class := range l.waiters {
		if l.ready[class].Empty() || !blocked[class] {
			l.yield(class)
		}
	}
}

// yield gives back the lane's place in the queue for slots.
func (l *lane[R]) yield(class int) {
	if l.waiting[class] {
		l.waiting[class] = false
		l.e.sub.slots.yield(class, &l.waiters[class])
	}
}

// choose returns the next ready entry, of all queues in turn.
func (l *lane[R]) choose(blocked [3]bool) (class int, e *entry[R]) {
	for range l.ready {
		l.lastClass = (l.lastClass + 1) % len(l.ready)
		if blocked[l.lastClass] {
			continue
		}
		for q := &l.ready[l.lastClass]; !q.Empty(); q.Pop() {
			if e := q.Peek(); e.phase == entryReady {
				return l.lastClass, e
			}
		}
	}
	return 0, nil
}

// mayBegin takes what a message needs to begin: a slot, the gaters' word, and a turn beside suspects. A message that
// runs alone needs neither slot nor turn: the messages that would give them wait for it. A message that is only written
// elsewhere needs none either: it may have to leave its source while others run.
func (l *lane[R]) mayBegin(e *entry[R]) Word {
	sub := l.e.sub
	slotted, probe := false, false
	if sub.slots.pace != nil && e.Step == driver.Handle { // what never runs does not use up the rate
		if err := sub.expired(e.State, e); err != nil {
			e.Step, e.Err = driver.Bury, err
		}
	}
	if class := e.class(); !l.opt.Exclusive && !e.Alone && e.Step == driver.Handle {
		slotted, probe = sub.slots.take(class, &l.waiters[class])
		if l.waiting[class] = !slotted; !slotted {
			return NothingYet
		}
	}
	word := l.askGates(e)
	takesTurn := e.Step == driver.Handle && sub.Turn != nil && !e.Alone
	if word == Begins && takesTurn && !sub.Turn.Begin() {
		l.endGates(l.opt.Gates, e, Ending{How: NotBegun})
		word = NothingYet
	}
	if slotted && (word != Begins || e.Alone) {
		sub.slots.cancel(e.class(), probe)
		slotted, probe = false, false
	}
	if word != Begins {
		return word
	}
	if !slotted && e.Step == driver.Handle {
		sub.slots.began()
	}
	e.slotted = slotted
	e.rested.Store(!takesTurn && !e.Alone)
	e.begin(e.State)
	e.current.Load().probe = probe
	return Begins
}

func (l *lane[R]) askGates(e *entry[R]) Word {
	for i, g := range l.opt.Gates {
		if word := g.Begin(&e.Message); word != Begins {
			l.endGates(l.opt.Gates[:i], e, Ending{How: NotBegun})
			return word
		}
	}
	return Begins
}

func (l *lane[R]) endGates(gates []Gater[R], e *entry[R], how Ending) {
	for _, g := range gates {
		g.End(&e.Message, how)
	}
}

// start has a message handled, or passed on.
func (l *lane[R]) start(e *entry[R]) {
	e.phase = entryRuns
	l.running++
	l.runCount.Store(int64(l.running))
	d := e.current.Load()
	switch e.Step {
	case driver.Handle:
		l.e.pool.Give(e)
	case driver.Bury:
		d.claim()
		d.settleFailure(e.Err, true)
	case driver.Hop:
		d.claim()
		d.passOn(driver.Level, e.Place)
	case driver.Publish:
		d.claim()
		d.passOn(driver.Topic, e.Place)
	case driver.Isolate:
		d.claim()
		d.passOn(driver.Suspects, e.Place)
	}
}

// finish settles a message that has ended.
func (l *lane[R]) finish(e *entry[R]) {
	l.release(e)
	l.running--
	l.runCount.Store(int64(l.running))
	l.endGates(l.opt.Gates, e, e.ending())
	if e.phase == entryGone { // it was abandoned while it ran
		l.passTurn(e)
		return
	}
	d := e.current.Load()
	switch e.how {
	case staying:
		e.State = e.newState
		if !l.isDraining() {
			e.Until, e.Step, e.Retry, e.InPlace = e.State.Due, driver.Handle, true, true
			l.wait(e)
			return
		}
		l.src.Return(&e.Message, max(0, time.Until(e.State.Due)), false)
	case abandoned:
		if !l.isLost() {
			l.src.Return(&e.Message, 0, d.runs)
		}
	case acked, forwarded:
		if l.isLost() {
			break
		}
		if e.how == acked { // first: a message that is settled has no events any more
			l.e.sub.Committed(d)
		}
		l.src.Settle(&e.Message)
		l.settled = true
	}
	l.remove(e)
	l.passTurn(e)
}

// release gives back the slot of a message that has ended.
func (l *lane[R]) release(e *entry[R]) {
	d := e.current.Load()
	said := silent
	if e.how != abandoned {
		said = d.said
	}
	switch {
	case e.slotted:
		l.e.sub.slots.give(e.class(), d.probe, said)
	case !l.opt.Exclusive:
		l.e.sub.slots.count(said)
	}
}

// Revise implements [driver.Lane].
func (l *lane[R]) Revise(f func(m *driver.Message[R])) {
	var held []*entry[R]
	l.waits.Delete(func(e *entry[R]) bool {
		held = append(held, e)
		return true
	})
	slices.SortFunc(held, func(x, y *entry[R]) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, e := range held {
		f(&e.Message)
		l.waits.Put(e.Until, e)
	}
}

// releaseLate is the end of a message that the lane did not live to see.
func (l *lane[R]) releaseLate(e *entry[R]) {
	l.release(e)
	for _, g := range l.opt.Gates {
		if late, ok := g.(LateGater[R]); ok {
			late.EndLate(&e.Message)
		}
	}
}

// Abandon implements [driver.Lane].
func (l *lane[R]) Abandon(m *driver.Message[R], cause error) {
	e, ok := m.Owner.(*entry[R])
	if !ok || e.phase == entryGone {
		return
	}
	e.lost.Store(true)
	if e.phase == entryRuns { // it keeps its slot and its turn until its handler has answered
		e.current.Load().End(cause)
		l.remove(e)
		return
	}
	l.remove(e)
	l.passTurn(e)
}

func (l *lane[R]) passOnSettled() {
	if l.settled {
		l.settled = false
		l.src.Commit()
	}
}

// accept tells the source how much more it may read.
func (l *lane[R]) accept() {
	sub := l.e.sub
	n := min(l.opt.MaxAhead-(l.inHand-l.held), l.opt.MaxHeld-l.held)
	if sub.Gate.Closed() || sub.Turn != nil && sub.Turn.Closed() { // others can have what nothing here may begin
		n = 0
	}
	if l.opt.MaxBytes > 0 && l.bytes >= l.opt.MaxBytes {
		n = 0
	}
	if n = max(0, n); n != l.accepted {
		l.accepted = n
		l.src.Accept(n)
	}
}

// sleep is how long the lane may wait for something to happen.
func (l *lane[R]) sleep(now time.Time) time.Duration {
	if at, ok := l.waits.Next(); ok {
		return max(0, at.Sub(now))
	}
	return time.Hour
}

func (l *lane[R]) isDraining() bool {
	select {
	case <-l.draining:
		return true
	default:
		return false
	}
}

// drain is the end of a lane: what was not begun is returned, and what is in flight may finish within the drain timeout. A
// source that is lost is given up at once: nothing of it can be settled any more.
func (l *lane[R]) drain(messages <-chan R) {
	sub := l.e.sub
	sub.Drain.Begin()
	defer sub.Drain.End()
	close(l.draining)
	for class := range l.waiters {
		l.yield(class)
	}
	l.src.Accept(0)
	stopped := l.src.Stop()
	l.ReturnUnrun(nil)
	l.drainEnd.Store(int64(time.Since(epoch) + l.opt.DrainTimeout))
	deadline := time.NewTimer(l.opt.DrainTimeout)
	defer deadline.Stop()
	cause := l.finishRunning(messages, stopped, deadline.C)
	l.readMail()
	l.passOnSettled()
	if !errors.Is(cause, ErrLost) {
		for e := l.last; e != nil; e = l.last {
			if e.phase == entryRuns {
				l.src.Return(&e.Message, 0, true)
			}
			l.remove(e)
		}
	}
	l.cancel(cause)
	l.closeMail()
	if !errors.Is(cause, ErrLost) {
		ctx, cancel := context.WithTimeout(context.Background(), max(l.opt.DrainTimeout, time.Second))
		l.src.Flush(ctx)
		cancel()
	}
	l.first, l.last = nil, nil
	l.runCount.Store(0)
	l.allCount.Store(0)
}

// closeMail does what was reported and posted until now. What ends later gives its slot back by itself.
func (l *lane[R]) closeMail() {
	l.mu.Lock()
	ended, posted := l.ended, l.posted
	l.ended, l.posted, l.closed = nil, nil, true
	l.mu.Unlock()
	for _, e := range ended {
		l.releaseLate(e)
	}
	for _, f := range posted {
		f()
	}
}

// finishRunning waits until nothing is in flight and the source has stopped. It returns why the rest is lost.
func (l *lane[R]) finishRunning(messages <-chan R, stopped <-chan struct{}, deadline <-chan time.Time) error {
	for l.running > 0 || stopped != nil {
		select {
		case rec, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			l.returnRecord(rec)
		case <-stopped:
			stopped = nil
		case <-l.bell:
			l.readMail()
			l.passOnSettled()
		case <-l.lost:
			return ErrLost
		case <-deadline:
			return ErrDrained
		}
	}
	for {
		select {
		case rec, ok := <-messages:
			if ok {
				l.returnRecord(rec)
				continue
			}
		default:
		}
		return ErrDrained
	}
}

// returnRecord returns a record that came when the lane was ending.
func (l *lane[R]) returnRecord(rec R) {
	if e := l.parse(rec); e != nil {
		l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
		l.remove(e)
	}
}

// ReturnUnrun implements [driver.Lane]. The last comes first: so a broker that gives them out in order keeps that.
func (l *lane[R]) ReturnUnrun(which func(*driver.Message[R]) bool) {
	for e := l.last; e != nil; {
		prev := e.prev
		if e.phase != entryRuns && (which == nil || which(&e.Message)) {
			l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
			l.remove(e)
			l.passTurn(e)
		}
		e = prev
	}
}
