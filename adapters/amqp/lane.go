package amqp

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/delayqueue"
)

// laneConfig is the queue that a lane reads.
type laneConfig struct {
	kind     kind
	queue    string
	level    time.Duration // of a delay queue
	prefetch int
	first    *opened       // where Subscribe has opened it
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
	gone   chan string  // the broker cancelled the consumer
	landed chan verdict // of suspects

	ordered bool   // messages keep their places
	lines   lines  // where that is so
	waiting pauses // what waits in place
	tired   bool   // it has kept its messages for too long

	halted time.Time // since when nothing may begin but probes; zero when something may
	paused bool      // that has been so for some time, see pause

	calling  context.Context // its end: no suspect gets a turn any more
	callOff  context.CancelFunc
	secluded chan *entry // suspects that have their turn
	alone    *entry      // the one that begins next
	solos    sync.WaitGroup

	ctx    context.Context // its end: the messages are lost to this process
	cancel context.CancelCauseFunc

	window    int // how many the broker may have sent
	consumers int // before the one that reads now
	slab      slab
	acks      acks
	hold      *delayqueue.Hold[*entry]
	ready     delayqueue.FIFO[*entry] // in the order in which they were read, or came due
	next      *entry                  // has a slot and waits for somebody to take it
	slot      bool                    // a slot without an entry yet
	flight    *delayqueue.Flight[*entry]
	timer     *time.Timer
	swept     time.Time // when what lies here was last looked at
	settled   time.Time // since when settled deliveries wait for their ack
}

// errLost is why the context of a message ends whose channel is gone.
var errLost = errors.New("amqp: the channel is closed; the message comes back")

// errTired is the same for one that waits in place on a channel that is to end.
var errTired = errors.New("amqp: messages have lain here for half of the consumer timeout; they come back")

// errDrained is the same for one whose handler did not finish in time.
var errDrained = errors.New("amqp: the subscriber closed, and the drain timeout is over")

func newLane(r *reader, cfg laneConfig, ch *amqp.Channel, in <-chan amqp.Delivery) *lane {
	l := &lane{
		laneConfig: cfg, r: r, ch: ch, in: in, window: cfg.firstWindow(r.client.cfg.RetryBytes),
		closed: ch.NotifyClose(make(chan *amqp.Error, 1)), gone: ch.NotifyCancel(make(chan string, 1)), landed: make(chan verdict, 1),
		hold:   delayqueue.NewHold[*entry](2*cfg.prefetch + 1), // the broker's prefetch is the bound, see fit
		flight: delayqueue.NewFlight[*entry](), timer: time.NewTimer(time.Hour), swept: time.Now(),
	}
	if l.ordered = l.kind == mainQueue && r.layout.ordered(); l.ordered {
		l.lines, l.secluded = make(lines), make(chan *entry)
	}
	if l.kind != suspectQueue {
		l.flight.Bound(&r.sub.Throttle)
	}
	l.ctx, l.cancel = context.WithCancelCause(r.values)
	l.calling, l.callOff = context.WithCancel(l.ctx)
	return l
}

// run reads the queue until ctx ends, and then waits for what is in flight, or
// until the channel is gone. It returns why.
func (l *lane) run(ctx context.Context) error {
	defer l.timer.Stop()
	defer l.r.sub.Carry(l.flight.Load)()
	for ctx.Err() == nil {
		busy, open := l.read()
		if !open || l.fit(time.Now()) != nil {
			return l.abandon()
		}
		busy = l.send() || busy
		busy = l.poll() || busy
		l.flight.Holds(l.acks.open() - l.flight.Len())
		if l.rested() {
			return l.renew()
		}
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
	var now time.Time
	for range 64 {
		select {
		case d, ok := <-l.in:
			if !ok {
				return busy, false
			}
			if !busy { // one look at the clock does for all
				now = time.Now()
			}
			l.take(d, now)
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
		if l.r.native != nil { // workers take all there is
			l.r.native.give(l.next)
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

// block waits until something can be done. It is false when the channel is gone.
func (l *lane) block(over <-chan struct{}) bool {
	var slots chan<- struct{}
	var opened, more, calm <-chan struct{}
	out := l.r.out
	if l.next == nil {
		out = nil
		l.flight.Watch()
		if (l.alone != nil || !l.ready.Empty()) && !l.tired {
			full := l.full()
			switch {
			case l.shut():
				opened = l.r.sub.Gate.Opened()
			case full != nil:
				more = full
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
		l.take(d, time.Now())
	case out <- l.peek():
		l.flight.Handed(l.next)
		l.next = nil
	case slots <- struct{}{}:
		l.slot = true
	case e := <-l.secluded: // there is only one
		l.alone = e
	case <-l.flight.Bell():
		l.flight.Poll(l.end)
	case <-opened:
	case <-more:
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
	d := min(l.r.client.cfg.ConsumerTimeout/20, pauseAfter)
	if l.flight.Unwatched() || l.tired || l.alone != nil { // nobody tells when the gate closes
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
