package amqp

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/delayqueue"
)

const (
	// ackWait is how long a settled delivery waits for others to be acked with it.
	ackWait = 2 * time.Millisecond
	// lateAck is how long it may wait behind an open one before it is acked by
	// itself.
	lateAck = 10 * time.Millisecond
)

// laneConfig is the queue that a lane reads.
type laneConfig struct {
	kind     kind
	queue    string
	level    time.Duration // of a delay queue
	prefetch int
	slots    chan struct{} // bound what is in flight; they outlive a lane, and all that reads retries shares them
}

// lane is one queue, read on one channel. Everything in it belongs to the one
// goroutine that runs it; others speak to it through its flight.
//
// A delivery goes: read -> hold, if it waits -> ready -> slot -> out -> settled
// -> acked. The channel is never used again after its end: tags begin anew on the
// next one, and a late ack must not settle another message.
type lane struct {
	laneConfig
	r      *reader
	ch     *amqp.Channel
	in     <-chan amqp.Delivery
	closed chan *amqp.Error
	gone   chan string   // the broker cancelled the consumer
	landed chan struct{} // of suspects: one was settled

	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc

	acks    acks
	hold    *delayqueue.Hold[*entry]
	ready   delayqueue.FIFO[*entry] // in the order in which they were read, or came due
	next    *entry                  // has a slot and waits for somebody to take it
	slot    bool                    // a slot without an entry yet
	flight  *delayqueue.Flight[*entry]
	timer   *time.Timer
	swept   time.Time // when what lies here was last looked at
	settled time.Time // since when settled deliveries wait for their ack
}

// errLost is why the context of a message ends whose channel is gone.
var errLost = errors.New("amqp: the channel is closed; the message comes back")

// errDrained is the same for one whose handler did not finish in time.
var errDrained = errors.New("amqp: the subscriber closed, and the drain timeout is over")

func newLane(r *reader, cfg laneConfig, ch *amqp.Channel, in <-chan amqp.Delivery) *lane {
	l := &lane{
		laneConfig: cfg, r: r, ch: ch, in: in,
		closed: ch.NotifyClose(make(chan *amqp.Error, 1)), gone: ch.NotifyCancel(make(chan string, 1)), landed: make(chan struct{}, 1),
		hold:   delayqueue.NewHold[*entry](cfg.prefetch + 1), // the broker's prefetch is the bound
		flight: delayqueue.NewFlight[*entry](cap(cfg.slots)), timer: time.NewTimer(time.Hour), swept: time.Now(),
	}
	l.ctx, l.cancel = context.WithCancelCause(r.values)
	return l
}

// run reads the queue until ctx ends, and then waits for what is in flight, or
// until the channel is gone. It returns why.
func (l *lane) run(ctx context.Context) error {
	defer l.timer.Stop()
	for ctx.Err() == nil {
		busy, open := l.read()
		if !open {
			return l.abandon()
		}
		busy = l.send() || busy
		busy = l.poll() || busy
		if busy {
			continue
		}
		// Handlers that answer at once do so while this goroutine steps aside.
		runtime.Gosched()
		if l.poll() {
			continue
		}
		if !l.block(ctx.Done()) {
			return l.abandon()
		}
	}
	l.drain()
	return nil
}

// read takes what the broker has sent, without waiting. open is false when the
// channel or the consumer has ended.
func (l *lane) read() (busy, open bool) {
	for range 64 {
		select {
		case d, ok := <-l.in:
			if !ok {
				return busy, false
			}
			l.take(d)
			busy = true
		default:
			return busy, true
		}
	}
	return busy, true
}

// send hands out what is ready, without waiting.
func (l *lane) send() (busy bool) {
	now := time.Now()
	l.release(now)
	l.handBack(now)
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

// prepare makes sure that next stands, if something is ready, a slot is free and
// it is this lane's turn.
func (l *lane) prepare() bool {
	for l.next == nil {
		if l.ready.Empty() || l.r.sub.Gate.Closed() {
			l.unslot()
			return false
		}
		if !l.slot {
			select {
			case l.slots <- struct{}{}:
				l.slot = true
			default:
				return false
			}
		}
		if l.kind != suspectQueue && !l.r.client.turn.Begin() {
			return false
		}
		e := l.ready.Pop()
		l.slot = false
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

// unslot gives back a slot for which there is nothing any more: the other lanes
// wait for it.
func (l *lane) unslot() {
	if l.slot {
		l.slot = false
		<-l.slots
	}
}

// poll settles what was answered since the last look, and tells the broker.
func (l *lane) poll() (busy bool) {
	busy = l.flight.Poll(l.end)
	l.flush(false)
	return busy
}

// flush sends acks, where there are enough of them or they have waited long
// enough: a quorum queue writes every ack to its log. An error means that the
// channel is gone, which shows in l.in.
func (l *lane) flush(force bool) {
	n := l.acks.pending()
	if n == 0 {
		return
	}
	enough := max(1, l.prefetch/2)
	now := time.Now()
	if l.settled.IsZero() {
		l.settled = now
	}
	waited := now.Sub(l.settled)
	if !force && n < enough && waited < ackWait {
		return
	}
	if l.acks.flush(enough, force || waited >= lateAck, l.ch.Ack) != nil {
		return
	}
	if l.acks.pending() == 0 || waited >= lateAck {
		l.settled = time.Time{}
	}
}

// block waits until something can be done. It is false when the channel is gone.
func (l *lane) block(over <-chan struct{}) bool {
	var slots chan<- struct{}
	var opened, calm <-chan struct{}
	out := l.r.out
	if l.next == nil {
		out = nil
		l.flight.Watch()
		if !l.ready.Empty() {
			switch {
			case l.r.sub.Gate.Closed():
				opened = l.r.sub.Gate.Opened()
			case !l.slot:
				slots = l.slots
			default:
				calm = l.r.client.turn.Calm()
			}
		}
	}
	l.timer.Reset(l.patience(time.Now()))
	select {
	case d, ok := <-l.in:
		if !ok {
			return false
		}
		l.take(d)
	case out <- l.peek():
		l.flight.Handed(l.next)
		l.next = nil
	case slots <- struct{}{}:
		l.slot = true
	case landed := <-l.flight.Landings():
		l.end(landed.E, landed.How)
	case <-opened:
	case <-calm:
	case <-l.timer.C:
		l.flight.Watch()
	case <-over:
	}
	return true
}

func (l *lane) peek() *message.Message {
	if l.next == nil {
		return nil
	}
	return l.next.msg
}

// patience is how long a blocked lane may sleep.
func (l *lane) patience(now time.Time) time.Duration {
	d := l.r.client.cfg.ConsumerTimeout / 20
	if l.flight.Unwatched() {
		d = delayqueue.Glance
	}
	if l.acks.pending() > 0 && !l.settled.IsZero() {
		wait := ackWait
		if now.Sub(l.settled) >= ackWait { // what is left waits behind an open delivery
			wait = lateAck
		}
		d = min(d, l.settled.Add(wait).Sub(now))
	}
	if at, ok := l.hold.Next(); ok {
		d = min(d, at.Sub(now))
	}
	return max(0, d)
}

// handBack gives back what has lain here unrun for half of the time after which
// the broker would close the channel. It comes again, uncounted. A suspect has
// its turn and runs at once.
func (l *lane) handBack(now time.Time) {
	limit := l.r.client.cfg.ConsumerTimeout / 2
	if now.Sub(l.swept) < limit/10 || l.kind == suspectQueue {
		return
	}
	l.swept = now
	l.ready.Delete(func(e *entry) bool {
		if now.Sub(e.arrived) < limit || l.ch.Nack(e.tag, false, true) != nil {
			return false
		}
		l.r.client.turn.Known.Add(l.idOf(e))
		l.acks.handedBack(e)
		return true
	})
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
	if how != delayqueue.Abandoned {
		l.acks.settle(e)
		if e.again {
			l.r.client.turn.Known.Settled(e.d.ID)
		}
	}
}

// leave gives back what an entry in flight held.
func (l *lane) leave(e *entry) {
	<-l.slots
	e.rest()
	if l.kind != suspectQueue {
		return
	}
	select {
	case l.landed <- struct{}{}:
	default: // its turn was over already
	}
}
