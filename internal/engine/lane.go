package engine

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/observe"
)

// maxRound bounds the messages that a lane reads before it does anything else.
const maxRound = 256

// slabSize is the largest number of entries that are allocated at once.
const slabSize = 32

// maxSlabRecord bounds the records of a slab, in bytes: one entry in use keeps the records of its whole slab in memory. A larger
// record is the last of its slab.
const maxSlabRecord = 4 << 10

// lane runs one source. Its goroutine owns all fields that mu does not guard and that are not atomic.
//
// A message is read, waits until it is due, waits until it is let in by its key, is ready, begins with a slot, ends, and is
// settled. See keyChain for the order of keys.
type lane[R any] struct {
	e   *Engine[R]
	src driver.Source[R]
	opt LaneOptions[R]

	ctx      context.Context // its end means that the messages are lost to this process
	cancel   context.CancelCauseFunc
	lost     <-chan struct{} // the source is lost
	draining chan struct{}   // closed when the lane begins no more messages

	slab        []entry[R]
	large       bool      // the latest record is larger than maxSlabRecord
	first, last *entry[R] // all entries, in the order of arrival
	bytes       int
	held        int                 // entries that wait until they are due, or behind another message of their key
	waits       DueQueue[*entry[R]] // also has entries that were abandoned meanwhile
	keys        map[uint64]*keyChain[R]
	spareChains []*keyChain[R]     // for reuse
	chainSlab   []keyChain[R]      // not used yet
	salt        uint64             // tells its keys from those of other lanes
	maxOfKey    int                // of one key that may be let in at once; 0 until a message waits for a batch
	ready       [3]FIFO[*entry[R]] // by entry.readyQueue; also has entries that were recalled meanwhile
	refused     FIFO[*entry[R]]    // entries that a gater refused; they are ready again after the next Post
	slotWaiters [2]slotWaiter
	awaitsSlot  [2]bool // the waiter is in the queue for slots, or may take the next one
	lastClass   int
	accepted    int  // the number that Accept was called with last; -1 means that it must be called again
	settled     bool // a message was settled since the last Commit
	timer       *time.Timer
	spare       []*entry[R] // memory of ended, reused
	spareJoins  []joinRequest[R]

	wakeups  chan struct{} // a value: there is work to do
	running  atomic.Int64  // other goroutines read it, and inHand
	inHand   atomic.Int64
	drainEnd atomic.Int64 // the end of the time to drain, counted from epoch; 0 while the lane does not drain

	mu     sync.Mutex
	ended  []*entry[R]
	joins  []joinRequest[R]
	posted []func()
	closed bool // the lane has ended and reads neither ended nor posted
}

func newLane[R any](values context.Context, e *Engine[R], src driver.Source[R], opt LaneOptions[R]) *lane[R] {
	l := &lane[R]{
		e: e, src: src, opt: opt, lost: src.Lost(), draining: make(chan struct{}),
		keys: make(map[uint64]*keyChain[R]), salt: rand.Uint64(), wakeups: make(chan struct{}, 1), timer: time.NewTimer(time.Hour), accepted: -1,
	}
	l.ctx, l.cancel = context.WithCancelCause(values)
	for i := range l.slotWaiters {
		l.slotWaiters[i].wake = l.wake
	}
	return l
}

func (l *lane[R]) wake() {
	select {
	case l.wakeups <- struct{}{}:
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
	l.wake()
	return true
}

// report passes a message that has ended to the lane's goroutine. After the lane's end it releases the message's slot instead.
func (l *lane[R]) report(e *entry[R]) {
	l.mu.Lock()
	if !l.closed {
		l.ended = append(l.ended, e)
		if len(l.ended) == 1 {
			l.wake()
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.releaseLate(e)
}

// load returns how many messages of the lane run, and how many do not. Any goroutine calls it.
func (l *lane[R]) load() observe.Load {
	running := int(l.running.Load())
	return observe.Load{InFlight: running, Held: max(0, int(l.inHand.Load())-running)}
}

// run reads the source until ctx ends, or the source closes or is lost. Then it waits for the messages in flight.
func (l *lane[R]) run(ctx context.Context) {
	defer l.timer.Stop()
	defer l.e.sub.loads.add(l.load)()
	defer l.e.sub.Gate.onOpen.add(l.wake)()
	defer l.e.sub.NewGate.onOpen.add(l.wake)()
	if l.e.sub.Turn != nil {
		defer l.e.sub.Turn.onChange.add(l.wake)()
	}
	messages := l.src.Messages()
	for {
		closed := l.readMessages(messages)
		l.readReports()
		l.begin(time.Now())
		l.commit()
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
		case <-l.wakeups:
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

// drainIsOver reports whether the time to drain is over, even if the lane's goroutine has not noticed that yet.
func (l *lane[R]) drainIsOver() bool {
	end := l.drainEnd.Load()
	return end != 0 && time.Since(epoch) >= time.Duration(end)
}

// isLost reports whether no message of the source can be settled any more.
func (l *lane[R]) isLost() bool {
	select {
	case <-l.lost:
		return true
	default:
		return l.ctx.Err() != nil
	}
}

// readMessages admits the messages that the source has ready. It reports whether the source has closed.
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
	l.wake() // there may be more
	return false
}

// readReports finishes the messages that have ended, and calls the posted functions.
func (l *lane[R]) readReports() {
	l.mu.Lock()
	ended, joins, posted := l.ended, l.joins, l.posted
	l.ended, l.joins, l.posted = l.spare, l.spareJoins, nil
	l.mu.Unlock()
	for _, e := range ended {
		l.finishInOrder(e)
	}
	clear(ended)
	l.spare = ended[:0]
	for _, j := range joins {
		l.joinBatch(j)
	}
	clear(joins)
	l.spareJoins = joins[:0]
	for _, f := range posted {
		f()
	}
	if len(posted) > 0 && len(l.opt.Gaters) > 0 {
		l.retryRefused()
	}
}

// retryRefused puts the messages that a gater refused back into the ready queues, before the others. A ready message may also
// change its queue: a gater may let it run alone.
func (l *lane[R]) retryRefused() {
	before := l.ready
	l.ready = [len(l.ready)]FIFO[*entry[R]]{}
	for _, q := range []*FIFO[*entry[R]]{&l.refused, &before[firstDelivery], &before[retry], &before[noSlot]} {
		for !q.Empty() {
			e := q.Pop()
			l.ready[e.readyQueue()].Push(e)
		}
	}
}

// admit creates the entry of a record, and makes it wait or makes it ready.
func (l *lane[R]) admit(rec R) {
	e := l.parse(rec)
	if e == nil {
		return
	}
	if !e.Until.IsZero() && e.Until.After(time.Now()) {
		if e.InPlace && !l.takeKey(e) {
			l.waitBehind(e) // until letInMore, which checks Until
			return
		}
		l.wait(e)
		return
	}
	l.enqueue(e)
}

// waitBehind marks an entry as waiting behind another one of its key.
func (l *lane[R]) waitBehind(e *entry[R]) {
	e.phase = entryChained
	l.held++
}

// parse returns the entry of a record, or nil if Parse refuses the record.
func (l *lane[R]) parse(rec R) *entry[R] {
	if len(l.slab) == 0 {
		n := min(slabSize, l.opt.MaxAhead)
		if l.large {
			n = 1
		}
		l.slab = l.e.makeSlab(n)
	}
	e := &l.slab[0]
	e.Record = rec
	l.accepted = -1 // so that accept calls Accept again, even if Parse fails
	if err := l.src.Parse(&e.Message); err != nil {
		*e = entry[R]{}
		return nil
	}
	l.slab = l.slab[1:]
	if l.large = e.Size > maxSlabRecord; l.large {
		l.slab = nil
	}
	e.lane, e.Owner = l, e
	e.endReported.Store(true)
	e.prev = l.last
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
	l.inHand.Add(1)
	l.bytes += e.Size
	return e
}

// makeSlab allocates n entries, and their members if messages are handled in batches. An entry and its member point to
// each other, so both slabs are freed together. Members in the order in which messages join batches would connect each
// slab of entries with the next, and no settled message could be freed.
func (e *Engine[R]) makeSlab(n int) []entry[R] {
	slab := make([]entry[R], n)
	if e.batches != nil {
		members := make([]BatchMember[R], n)
		for i := range slab {
			slab[i].member = &members[i]
		}
	}
	return slab
}

// remove removes an entry from the lane.
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
	l.inHand.Add(-1)
	l.bytes -= e.Size
}

// wait makes an entry wait until it is due.
func (l *lane[R]) wait(e *entry[R]) {
	e.phase = entryWaits
	l.held++
	if l.waits.Len() > 2*l.held+slabSize { // most of them were abandoned: do not keep those until they would have been due
		l.waits.Delete(func(e *entry[R]) bool { return e.phase != entryWaits })
	}
	l.waits.Put(e.Until, e)
}

// enqueue makes a due entry ready, or makes it wait behind the message that owns its key.
func (l *lane[R]) enqueue(e *entry[R]) {
	if l.takeKey(e) {
		l.pushReady(e)
	} else {
		l.waitBehind(e)
	}
}

// pushReady makes an entry ready.
func (l *lane[R]) pushReady(e *entry[R]) {
	e.phase = entryReady
	l.ready[e.readyQueue()].Push(e)
}

// begin begins the messages that are due and may begin.
func (l *lane[R]) begin(now time.Time) {
	for {
		e, ok := l.waits.Pop(now)
		if !ok {
			break
		}
		if e.phase == entryWaits { // not abandoned meanwhile
			l.held--
			l.enqueue(e)
		}
	}
	sub := l.e.sub
	newPaused := sub.NewGate.Closed()
	blocked := [3]bool{firstDelivery: newPaused}
	for l.opt.Exclusive || !sub.Gate.Closed() { // an exclusive message has the Turn: others wait for its end, even if the gate is closed
		class, e := l.chooseReady(blocked)
		if e == nil {
			break
		}
		switch l.tryBegin(e) {
		case Begins:
			l.ready[class].Pop()
			l.start(e)
		case NotYet:
			l.ready[class].Pop()
			l.refused.Push(e)
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
			l.leaveChain(e)
		}
	}
	blocked[firstDelivery] = blocked[firstDelivery] && !newPaused // while NewGate is closed, first deliveries do not wait for slots
	for class := range l.slotWaiters {
		if l.ready[class].Empty() || !blocked[class] {
			l.leaveSlotQueue(class)
		}
	}
}

// leaveSlotQueue gives up the lane's place in the queue for slots.
func (l *lane[R]) leaveSlotQueue(class int) {
	if l.awaitsSlot[class] {
		l.awaitsSlot[class] = false
		l.e.sub.slots.yield(class, &l.slotWaiters[class])
	}
}

// chooseReady returns the next ready entry of a queue that is not blocked, or nil. It begins with the queue after the last one
// that it chose from.
func (l *lane[R]) chooseReady(blocked [3]bool) (class int, e *entry[R]) {
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

// tryBegin takes everything that a message needs to begin: a slot, the gaters' permission, and a Turn.Begin, so that no suspect
// runs. A message that runs alone needs neither slot nor Turn.Begin: messages with slots may wait for it. A message that is
// only written elsewhere needs neither, because it may have to leave its source while others run.
func (l *lane[R]) tryBegin(e *entry[R]) Admission {
	sub := l.e.sub
	slotted, probe := false, false
	if sub.slots.rate != nil && e.Step == driver.StepHandle { // an expired message must not use up the rate
		if err := sub.checkExpired(e.State, e); err != nil {
			e.Step, e.Err = driver.StepDeadLetter, err
		}
	}
	if class := e.class(); !l.opt.Exclusive && !e.Alone && e.Step == driver.StepHandle {
		slotted, probe = sub.slots.acquire(class, &l.slotWaiters[class])
		if l.awaitsSlot[class] = !slotted; !slotted {
			return NothingYet
		}
	}
	admission := l.askGaters(e)
	takesTurn := e.Step == driver.StepHandle && sub.Turn != nil && !e.Alone
	if admission == Begins && takesTurn && !sub.Turn.Begin() {
		l.endGaters(l.opt.Gaters, e, Ending{Kind: NotBegun})
		admission = NothingYet
	}
	if slotted && (admission != Begins || e.Alone) {
		sub.slots.cancel(e.class(), probe)
		slotted, probe = false, false
	}
	if admission != Begins {
		return admission
	}
	switch {
	case slotted && e.Step != driver.StepHandle: // a gater moves it; its slot bounds how many are being written
		sub.slots.cancelRate()
	case !slotted && e.Step == driver.StepHandle:
		sub.slots.beginWithoutSlot()
	}
	e.slotted = slotted
	e.endReported.Store(!takesTurn && !e.Alone)
	e.newDelivery(e.State)
	e.current.Load().probe = probe
	return Begins
}

// askGaters asks the gaters in their order whether a message may begin. If one does not answer Begins, askGaters calls
// End of those before it and returns its answer.
func (l *lane[R]) askGaters(e *entry[R]) Admission {
	for i, g := range l.opt.Gaters {
		if admission := g.Begin(&e.Message); admission != Begins {
			l.endGaters(l.opt.Gaters[:i], e, Ending{Kind: NotBegun})
			return admission
		}
	}
	return Begins
}

func (l *lane[R]) endGaters(gaters []Gater[R], e *entry[R], how Ending) {
	for _, g := range gaters {
		g.End(&e.Message, how)
	}
}

// start passes a message to a worker, or writes it to its next place.
func (l *lane[R]) start(e *entry[R]) {
	e.phase = entryRuns
	l.running.Add(1)
	d := e.current.Load()
	switch e.Step {
	case driver.StepHandle:
		if l.e.batches != nil && l.e.sub.Policy.Invalid == nil { // it needs no worker
			if m := l.e.newMember(e, d); m != nil {
				l.joinBatch(joinRequest[R]{e, l.e.batches, m})
			}
			return
		}
		l.e.pool.Submit(e)
	case driver.StepDeadLetter:
		d.claim()
		d.settleFailure(e.Err, true)
	case driver.StepHop:
		l.joined(e) // what is behind it may also only move
		d.claim()
		d.moveUnhandled(driver.PlaceLevel, e.Place)
	case driver.StepPublish:
		d.claim()
		d.moveUnhandled(driver.PlaceTopic, e.Place)
	case driver.StepIsolate:
		d.claim()
		d.moveUnhandled(driver.PlaceSuspects, e.Place)
	}
}

// finish settles a message that has ended.
func (l *lane[R]) finish(e *entry[R]) {
	l.release(e)
	l.running.Add(-1)
	l.endGaters(l.opt.Gaters, e, e.ending)
	l.recallFollowers(e)
	if e.phase == entryGone { // it was abandoned while it ran
		l.leaveChain(e)
		return
	}
	d := e.current.Load()
	switch e.ending.Kind {
	case Stays:
		e.State = e.ending.State
		e.Until, e.Step, e.Retry, e.InPlace = e.State.Due, driver.StepHandle, true, true
		switch {
		case !l.isDraining():
			l.wait(e)
			return
		case e.chain != nil && e.chain.last != e: // drain returns it, after those behind it
			l.waitBehind(e)
			return
		}
		l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
	case Unsettled:
		if e.ending.State != nil {
			e.State = e.ending.State
		}
		e.single = e.single || e.ending.Single
		l.requeue(e)
		return
	case Abandoned:
		if !l.isLost() {
			l.src.Return(&e.Message, 0, d.runs)
		}
	default:
		if l.isLost() {
			break
		}
		if e.ending.Kind == Acked { // before Settle: a settled message has no events
			l.e.sub.reportCommitted(d)
		}
		l.src.Settle(&e.Message)
		l.settled = true
	}
	l.remove(e)
	l.leaveChain(e)
}

// release gives back the slot of a message that has ended, and counts its outcome.
func (l *lane[R]) release(e *entry[R]) {
	d := e.current.Load()
	sig, began := signalNone, time.Duration(0)
	if e.ending.Kind != Abandoned { // otherwise its attempt may still begin in a Router
		sig, began = d.signal, d.began
	}
	switch {
	case e.slotted:
		l.e.sub.slots.release(e.class(), d.probe, sig, began)
	case !l.opt.Exclusive:
		l.e.sub.slots.endWithoutSlot(sig, began)
	}
}

// Revise implements [driver.Lane].
func (l *lane[R]) Revise(f func(m *driver.Message[R])) {
	var all []*entry[R]
	l.waits.Delete(func(e *entry[R]) bool {
		all = append(all, e)
		return true
	})
	slices.SortFunc(all, func(x, y *entry[R]) int { return cmp.Compare(x.Seq, y.Seq) })
	for _, e := range all {
		f(&e.Message)
		l.waits.Put(e.Until, e)
	}
}

// releaseLate releases a message that ended after its lane.
func (l *lane[R]) releaseLate(e *entry[R]) {
	l.release(e)
	if e.current.Load().holdsKey {
		e.batched.freeKey()
	}
	for _, g := range l.opt.Gaters {
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
	if e.phase == entryRuns { // it keeps its slot and its key until its handler answers
		e.current.Load().End(cause)
		l.remove(e)
		return
	}
	l.remove(e)
	l.leaveChain(e)
}

func (l *lane[R]) commit() {
	if l.settled {
		l.settled = false
		l.src.Commit()
	}
}

// accept calls Accept with the number of messages that the lane has room for.
func (l *lane[R]) accept() {
	sub := l.e.sub
	n := min(l.opt.MaxAhead-(int(l.inHand.Load())-l.held), l.opt.MaxWaiting-l.held)
	if sub.Gate.Closed() || sub.Turn != nil && sub.Turn.Closed() { // so that other processes get the messages
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

// sleep returns the time until the next message is due.
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

// maxFlush bounds how long Flush may take. docs/how-to/shutdown-on-kubernetes.md leaves 15 s for it and for closing the
// connection.
const maxFlush = 10 * time.Second

// drain ends the lane: it returns the messages that have not begun, and waits for those in flight, at most for the
// DrainTimeout or the MoveTimeout. It does not wait after the source is lost, because no message can be settled then.
func (l *lane[R]) drain(messages <-chan R) {
	sub := l.e.sub
	sub.Drain.Begin()
	defer sub.Drain.End()
	close(l.draining)
	for class := range l.slotWaiters {
		l.leaveSlotQueue(class)
	}
	l.src.Accept(0)
	stopped := l.src.Stop()
	l.ReturnUnrun(nil)
	timeout := max(l.opt.DrainTimeout, l.opt.MoveTimeout)
	l.drainEnd.Store(int64(time.Since(epoch) + timeout))
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	cause := l.finishRunning(messages, stopped, deadline)
	l.readReports()
	l.commit()
	lost := errors.Is(cause, ErrLost)
	for e := l.last; e != nil; e = l.last {
		switch {
		case lost:
		case e.phase == entryRuns:
			l.src.Return(&e.Message, 0, true)
		default: // it failed in place, or its answer did not count
			l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
		}
		l.remove(e)
	}
	l.cancel(cause)
	l.closeReports()
	if !lost {
		ctx, cancel := context.WithTimeout(context.Background(), min(max(l.opt.DrainTimeout, time.Second), maxFlush))
		l.src.Flush(ctx)
		cancel()
	}
}

// closeReports handles the last reports and posted functions. From then on report releases the slot of a message that ends.
func (l *lane[R]) closeReports() {
	l.mu.Lock()
	ended, joins, posted := l.ended, l.joins, l.posted
	l.ended, l.joins, l.posted, l.closed = nil, nil, nil, true
	l.mu.Unlock()
	for _, j := range joins {
		j.q.add(j.m)
	}
	for _, e := range ended {
		l.releaseLate(e)
	}
	for _, f := range posted {
		f()
	}
}

// finishRunning waits until no message is in flight and the source has stopped, or until the source is lost or the deadline is
// over. It returns the cause with which the contexts of the remaining messages end.
func (l *lane[R]) finishRunning(messages <-chan R, stopped <-chan struct{}, deadline *time.Timer) error {
	hurry := l.opt.Hurry
	for l.running.Load() > 0 || stopped != nil {
		select {
		case rec, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			l.returnRecord(rec)
		case <-stopped:
			stopped = nil
		case <-l.wakeups:
			l.readReports()
			l.commit()
		case <-l.lost:
			return ErrLost
		case <-hurry:
			hurry = nil
			now := time.Since(epoch)
			end := min(time.Duration(l.drainEnd.Load()), now+l.opt.DrainTimeout)
			l.drainEnd.Store(int64(end))
			deadline.Reset(end - now)
		case <-deadline.C:
			return ErrDrained
		}
	}
	for {
		select {
		case rec, ok := <-messages:
			if !ok {
				messages = nil
				continue
			}
			l.returnRecord(rec)
		case <-l.lost:
			return ErrLost
		default:
			return ErrDrained
		}
	}
}

// returnRecord returns a record that came while the lane drained.
func (l *lane[R]) returnRecord(rec R) {
	if e := l.parse(rec); e != nil {
		l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
		l.remove(e)
	}
}

// ReturnUnrun implements [driver.Lane]. It returns the last message first: a broker that puts each one at the head of its queue
// then keeps the order.
func (l *lane[R]) ReturnUnrun(selected func(*driver.Message[R]) bool) {
	for e := l.last; e != nil; {
		prev := e.prev
		if e.phase != entryRuns && (selected == nil || selected(&e.Message)) {
			l.src.Return(&e.Message, max(0, time.Until(e.Until)), false)
			l.remove(e)
			l.leaveChain(e)
		}
		e = prev
	}
}
