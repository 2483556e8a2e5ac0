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
	groups  *groups // nil on a standard queue

	receiving context.Context // its end cuts all receives short
	cut       context.CancelFunc
	waiting   context.Context // its end cuts those short that need not be waited for
	hurry     context.CancelFunc

	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc

	slab     slab
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
		in: make(chan arrival, cfg.Pollers+1), groups: newGroups(q), landed: make(chan struct{}, 1), cleared: make(chan struct{}, 1),
		deleted: make(chan *deletion, 1024), beaten: make(chan beaten, 1024),
		tickets: make(map[string]*ticket), lines: make(map[string]*line), hold: delayqueue.NewHold[*entry](cfg.hand.messages),
		limits: [2]int{cfg.MaxInFlight, cfg.MaxRetriesInFlight}, timer: time.NewTimer(time.Hour), swept: time.Now(),
	}
	if k == suspectQueue {
		l.limits = [2]int{1, 1}
	}
	l.flight = delayqueue.NewFlight[*entry]()
	if k != suspectQueue {
		l.flight.Bound(&r.sub.Throttle)
	}
	l.intake = newIntake(cfg.MaxInFlight+cfg.MaxRetriesInFlight+batchMost*cfg.Pollers, cfg.Pollers)
	l.ctx, l.cancel = context.WithCancelCause(r.values)
	l.receiving, l.cut = context.WithCancel(r.values)
	l.waiting, l.hurry = context.WithCancel(l.receiving)
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
	defer l.r.sub.Carry(l.flight.Load)()
	defer l.cut()
	defer l.hurry()
	l.count()
	if l.kind == suspectQueue {
		l.polling.Go(func() { l.feed(ctx) })
	} else {
		for n := range l.r.client.cfg.Pollers {
			l.polling.Go(func() { l.poll(ctx, n) })
		}
		if l.groups != nil {
			l.polling.Go(func() { l.watch(ctx) })
		}
	}
	l.handle(ctx)
	l.drain()
}

// handle has what comes handled until ctx ends.
func (l *lane) handle(ctx context.Context) {
	for ctx.Err() == nil {
		busy := l.read()
		busy = l.send() || busy
		busy = l.flight.Poll(l.end) || busy
		l.flight.Holds(len(l.tickets) - l.settled - l.flight.Len())
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
	l.slab.begin(a.messages)
	for i := range a.messages {
		l.take(&a.messages[i], a.at, a.hidden)
	}
	if l.stopping {
		l.giveBack()
	}
	l.count()
	if a.taken > 0 { // it came from a poller
		l.groups.come()
		l.intake.give(a.taken)
	}
}

// count tells the pollers how much room there is.
func (l *lane) count() {
	room := l.intake.most - l.ready[fresh].Len() - l.ready[retried].Len() - l.flight.Len() - l.settled
	room = min(room, l.r.client.cfg.hand.room(len(l.tickets), l.bytes, l.queue.limit))
	l.intake.set(max(0, room))
}

// send hands out what is ready, without waiting.
func (l *lane) send() (busy bool) {
	now := time.Now()
	l.release(now)
	l.sweep(now)
	for l.prepare() {
		if l.r.consumer != nil {
			l.r.consumer.give(l.next)
			l.next = nil
			busy = true
			continue
		}
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
			l.flight.Yield()
			return false
		}
		if l.ready[class].Peek().ticket.Err() != nil { // it was lost while it lay here
			l.ready[class].Pop()
			continue
		}
		if !l.flight.Room() || l.kind != suspectQueue && !l.r.client.turn.Begin() {
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
	var opened, more, calm <-chan struct{}
	out := l.r.out
	if l.next == nil {
		out = nil
		l.flight.Watch()
		if _, ok := l.choose(); ok {
			switch {
			case l.r.sub.Gate.Closed():
				opened = l.r.sub.Gate.Opened()
			case !l.flight.Room():
				more = l.flight.More()
			default:
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
	case <-l.flight.Bell():
		l.flight.Poll(l.end)
	case d := <-l.deleted:
		l.gone(d)
	case b := <-l.beaten:
		l.heard(b)
	case <-opened:
	case <-more:
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
