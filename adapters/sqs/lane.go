package sqs

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/delayqueue"
)

// lane is one queue that is read. Everything in it belongs to the one goroutine
// that runs it; others speak to it through its flight and its channels.
//
// A message goes: received -> hold, if it waits -> ready -> slot -> out -> settled
// -> deleted. In a FIFO queue it stands in the line of its group before that. All
// the time it is hidden from others, by its ticket.
type lane struct {
	r     *reader
	kind  kind
	queue *queue

	in      chan arrival
	deleted chan *deletion
	beaten  chan beaten
	landed  chan struct{} // of suspects: one was settled
	cleared chan struct{} // of suspects: one is gone from the queue
	polling sync.WaitGroup
	intake  *intake
	ctx     context.Context // its end: the messages are lost to this process
	cancel  context.CancelCauseFunc

	tickets  map[string]*ticket // in hand, by MessageId
	bytes    int
	settled  int // tickets whose messages are settled and not yet deleted
	lines    map[string]*line
	hold     *delayqueue.Hold[*entry]
	ready    [2]delayqueue.FIFO[*entry] // first deliveries and retries, in the order in which they came, or came due
	running  [2]int                     // of both, in flight
	limits   [2]int
	turnOf   int    // which of both is asked first
	next     *entry // has a slot and waits for somebody to take it
	flight   *delayqueue.Flight[*entry]
	leaving  []*entry     // moved on; their handlers' answers may still be on the way
	unsure   atomic.Int64 // receives that failed, and may have counted
	timer    *time.Timer
	swept    time.Time
	hider    *hider
	deleter  *deleter
	backing  sync.WaitGroup // messages that are given back
	stopping bool
}

// Classes of what runs, each with slots of its own.
const (
	fresh   = 0
	retried = 1
)

var (
	// errLost is why the context of a message ends that others may have by now.
	errLost = errors.New("sqs: the message is no longer hidden from others; it comes back")
	// errDrained is the same for one whose handler did not finish in time.
	errDrained = errors.New("sqs: the subscriber closed, and the drain timeout is over")
)

func newLane(r *reader, k kind, q *queue) *lane {
	cfg := &r.client.cfg
	l := &lane{
		r: r, kind: k, queue: q,
		in: make(chan arrival, cfg.Pollers), landed: make(chan struct{}, 1), cleared: make(chan struct{}, 1),
		deleted: make(chan *deletion, 1024), beaten: make(chan beaten, 1024),
		tickets: make(map[string]*ticket), lines: make(map[string]*line), hold: delayqueue.NewHold[*entry](1 << 30), // handMost is the bound
		limits: [2]int{cfg.MaxInFlight, cfg.MaxRetriesInFlight}, timer: time.NewTimer(time.Hour), swept: time.Now(),
	}
	if k == suspectQueue {
		l.limits = [2]int{1, 1}
	}
	l.flight = delayqueue.NewFlight[*entry](l.limits[fresh] + l.limits[retried])
	l.intake = newIntake(cfg.MaxInFlight+cfg.MaxRetriesInFlight+batchMost*cfg.Pollers, cfg.Pollers)
	l.ctx, l.cancel = context.WithCancelCause(r.values)
	l.hider = newHider(r.client.api, q, cfg.VisibilityTimeout, cfg.SendTimeout)
	l.deleter = newDeleter(r.client.api, q, cfg.SendTimeout, func(d *deletion) {
		select {
		case l.deleted <- d:
		case <-l.ctx.Done():
		}
	})
	if k == suspectQueue { // the next one waits for the deletion
		l.deleter.batches.hurry()
	}
	return l
}

// run reads the queue until ctx ends, and then waits for what is in flight.
func (l *lane) run(ctx context.Context) {
	defer l.timer.Stop()
	if l.kind == suspectQueue {
		l.polling.Go(func() { l.feed(ctx) })
	} else {
		for n := range l.r.client.cfg.Pollers {
			l.polling.Go(func() { l.poll(ctx, n) })
		}
	}
	for ctx.Err() == nil {
		busy := l.read()
		busy = l.send() || busy
		busy = l.flight.Poll(l.end) || busy
		if busy {
			continue
		}
		// Handlers that answer at once do so while this goroutine steps aside.
		runtime.Gosched()
		if l.flight.Poll(l.end) {
			continue
		}
		l.block(ctx.Done())
	}
	l.drain()
}

// read takes what has come, without waiting.
func (l *lane) read() (busy bool) {
	for range 64 {
		select {
		case a := <-l.in:
			l.arrive(a)
		case d := <-l.deleted:
			l.gone(d)
		case b := <-l.beaten:
			l.heard(b)
		default:
			return busy
		}
		busy = true
	}
	return busy
}

func (l *lane) arrive(a arrival) {
	for i := range a.messages {
		l.take(&a.messages[i], a.at)
	}
	l.count()
	if a.taken > 0 {
		l.intake.give(a.taken)
	}
}

// count tells the pollers how much room there is.
func (l *lane) count() {
	room := l.intake.most - l.ready[fresh].Len() - l.ready[retried].Len() - l.flight.Len() - l.settled
	room = min(room, handMost-len(l.tickets))
	if l.bytes > handBytes {
		room = 0
	}
	l.intake.set(max(0, room))
}

// send hands out what is ready, without waiting.
func (l *lane) send() (busy bool) {
	now := time.Now()
	l.release(now)
	l.sweep(now)
	for l.prepare() {
		select {
		case l.r.out <- l.next.msg:
			l.flight.Handed(l.next)
			l.next = nil
			busy = true
		default:
			return busy
		}
	}
	return busy
}

// release makes ready what has waited long enough.
func (l *lane) release(now time.Time) {
	for {
		e, ok := l.hold.Pop(now)
		if !ok {
			return
		}
		if e.ticket.Err() == nil {
			l.ready[e.class()].Push(e)
		}
	}
}

// choose is the class whose first entry may begin.
func (l *lane) choose() (class int, ok bool) {
	for range 2 {
		l.turnOf = 1 - l.turnOf
		if !l.ready[l.turnOf].Empty() && l.running[l.turnOf] < l.limits[l.turnOf] {
			return l.turnOf, true
		}
	}
	return 0, false
}

// prepare makes sure that next stands, if something is ready, a slot is free and
// it is this lane's turn.
func (l *lane) prepare() bool {
	for l.next == nil {
		if l.r.sub.Gate.Closed() {
			return false
		}
		class, ok := l.choose()
		if !ok {
			return false
		}
		if l.ready[class].Peek().ticket.Err() != nil { // it was lost while it lay here
			l.ready[class].Pop()
			continue
		}
		if l.kind != suspectQueue && !l.r.client.turn.Begin() {
			return false
		}
		e := l.ready[class].Pop()
		l.running[class]++
		e.busy.Store(l.kind != suspectQueue)
		l.flight.Begin(e)
		if e.then != toHandler {
			l.pass(e)
		} else if l.unpack(e) {
			l.next = e
		}
	}
	return true
}

// block waits until something can be done.
func (l *lane) block(over <-chan struct{}) {
	var opened, calm <-chan struct{}
	out := l.r.out
	if l.next == nil {
		out = nil
		l.flight.Watch()
		if _, ok := l.choose(); ok {
			if l.r.sub.Gate.Closed() {
				opened = l.r.sub.Gate.Opened()
			} else {
				calm = l.r.client.turn.Calm()
			}
		}
	}
	l.timer.Reset(l.patience(time.Now()))
	select {
	case a := <-l.in:
		l.arrive(a)
	case out <- l.peek():
		l.flight.Handed(l.next)
		l.next = nil
	case landed := <-l.flight.Landings():
		l.end(landed.E, landed.How)
	case d := <-l.deleted:
		l.gone(d)
	case b := <-l.beaten:
		l.heard(b)
	case <-opened:
	case <-calm:
	case <-l.timer.C:
		l.flight.Watch()
	case <-over:
	}
}

func (l *lane) peek() *message.Message {
	if l.next == nil {
		return nil
	}
	return l.next.msg
}

// patience is how long a blocked lane may sleep.
func (l *lane) patience(now time.Time) time.Duration {
	d := l.pace()
	if l.flight.Unwatched() {
		d = delayqueue.Glance
	}
	if at, ok := l.hold.Next(); ok {
		d = min(d, at.Sub(now))
	}
	return max(0, d)
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
	l.leave(e)
	t := e.ticket
	switch {
	case how == delayqueue.Abandoned && l.kind == suspectQueue && l.stopping: // see acquit
	case how == delayqueue.Abandoned && e.unrun.Load():
		l.handBack(t, time.Time{})
	case how == delayqueue.Abandoned:
		l.comesBack(t)
	case how == delayqueue.Forwarded && e.stays.Load() != nil:
		l.stay(e, e.stays.Load())
	default:
		if how == delayqueue.Forwarded {
			l.depart(e)
		}
		t.suspect = e.then == toSuspects
		l.settle(t)
	}
	l.count()
}

// leave gives back what an entry in flight held.
func (l *lane) leave(e *entry) {
	l.running[e.class()]--
	e.rest()
	if l.kind != suspectQueue {
		return
	}
	select {
	case l.landed <- struct{}{}:
	default: // its turn was over already
	}
}

// settle has a message deleted, and the next of its group run. That one does not
// wait for the deletion: a process that dies in between runs both again, in order.
func (l *lane) settle(t *ticket) {
	if l.tickets[t.id] != t || t.entry == nil {
		return
	}
	t.entry = nil
	l.settled++
	l.deleter.add(t)
	l.step(t)
}

// gone drops a message that is deleted, or no longer ours.
func (l *lane) gone(d *deletion) {
	l.settled--
	if d.err == nil {
		l.r.client.turn.Known.Settled(d.t.id)
	}
	if d.t.suspect {
		// Only now is it to run: a process that dies of it before its source is
		// deleted would leave that as well.
		select {
		case l.r.poke <- struct{}{}:
		default:
		}
	}
	l.drop(d.t)
	l.count()
}

// drop forgets a message.
func (l *lane) drop(t *ticket) {
	if l.tickets[t.id] == t {
		delete(l.tickets, t.id)
		l.bytes -= t.bytes
	}
	if t.parting == 0 {
		t.End(nil)
	}
	if l.kind == suspectQueue {
		select {
		case l.cleared <- struct{}{}:
		default:
		}
	}
}

// comesBack is the end of a message that was not settled: SQS shows it again.
func (l *lane) comesBack(t *ticket) {
	if l.tickets[t.id] != t {
		return
	}
	l.lose(t)
}

// lose drops a message that others may have by now, and all behind it in its
// group, which must not overtake it.
func (l *lane) lose(t *ticket) {
	if e := t.entry; e != nil && e.state != nil && e.inPlace {
		l.r.client.memory.put(t.id, e.state)
	}
	l.r.client.turn.Known.Add(t.id)
	t.entry = nil
	t.End(errLost)
	l.drop(t)
	l.breakLine(t)
}
