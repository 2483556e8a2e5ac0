package amqp

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// queueConfig is a queue that is read.
type queueConfig struct {
	kind     kind
	queue    string
	level    time.Duration // of a delay queue
	prefetch int
	first    *openChannel // where Subscribe has opened it
}

// source reads one queue on one channel. It ends with its channel, which is never used again: tags begin anew on the next one,
// and a late ack must not settle another message. It implements driver.Source.
//
// The lane's goroutine owns everything in it, but for what is said. A goroutine passes on what the channel brings, another one
// waits for the channel's end.
type source struct {
	queueConfig
	r       *reader
	ch      *amqp091.Channel
	in      chan *delivery
	lane    driver.Lane[*delivery]
	ordered bool // messages keep their places

	lost    chan struct{} // closed when the channel has ended
	over    chan struct{} // closed when the lane has
	finish  context.CancelFunc
	calling context.Context // its end: no suspect gets a turn any more
	callOff context.CancelFunc
	why     atomic.Pointer[error] // why the channel, or the reading of it, has ended
	tasks   tasks                 // that the end waits for
	calls   sync.Mutex            // from Stop on: two calls of one channel would get each other's answers
	feeding sync.WaitGroup

	window    int // how many the broker may have sent
	consumers int // before the one that reads now
	consumer  *consumer
	lastEnded <-chan struct{} // of the last consumer; nil before the first
	halted    time.Time       // since when nothing may begin; zero when something may
	paused    bool
	swept     time.Time // when what lies here was last looked at
	looking   *time.Timer
	ackTimer  *time.Timer
	settled   time.Time // since when settled deliveries wait for their ack

	acks    acks
	back    []*delivery    // to be given back
	giving  bool           // and a timer runs for that
	lines   map[uint64]int // where messages keep their places: those in hand, by key
	running int            // messages with handlers there
	tired   bool           // messages have lain here for too long there: nothing begins any more
	stopped bool
	acked   bool // the broker was sent an ack
}

var (
	_    driver.Source[*delivery]    = (*source)(nil)
	_    engine.Gater[*delivery]     = (*source)(nil)
	_    engine.LateGater[*delivery] = (*source)(nil)
	seed                             = maphash.MakeSeed()
)

// The ends of a source that are no failures.
var (
	errTired  = errors.New("amqp: messages have lain here for half of the consumer timeout; they come back")
	errPaused = errors.New("amqp: nothing may begin; the messages wait in the queue")
)

var errCancelled = errors.New("the broker cancelled the consumer: the queue was deleted, or its leader moved")

// errLost is why a source has ended whose channel does not say why.
var errLost = errors.New("amqp: the channel is closed; the message comes back")

func newSource(r *reader, cfg queueConfig, ch *amqp091.Channel) *source {
	s := &source{
		queueConfig: cfg, r: r, ch: ch, in: make(chan *delivery, min(256, cfg.prefetch)), ordered: cfg.kind == mainQueue && r.layout.ordered(),
		lost: make(chan struct{}), over: make(chan struct{}), window: cfg.firstWindow(r.client.cfg.RetryBytes), swept: time.Now(),
	}
	if s.ordered {
		s.lines = make(map[uint64]int)
	}
	if cfg.kind == suspectQueue {
		s.in = make(chan *delivery)
	}
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	go func() {
		if err := <-closed; err != nil {
			s.fail(err)
		}
		close(s.lost)
	}()
	return s
}

// fail notes why the source ends; the first reason stands.
func (s *source) fail(err error) { s.why.CompareAndSwap(nil, &err) }

// run reads the queue until ctx ends, or the source does. It returns why.
func (s *source) run(ctx context.Context, e *engine.Engine[*delivery], in <-chan amqp091.Delivery) error {
	ctx, s.finish = context.WithCancel(ctx)
	defer s.finish()
	s.calling, s.callOff = context.WithCancel(s.r.values)
	defer s.callOff()
	most := 2*s.prefetch + 16 // the broker's prefetch is the bound
	opt := engine.LaneOptions[*delivery]{MaxAhead: most, MaxHeld: most, DrainTimeout: s.r.client.cfg.DrainTimeout, Exclusive: s.kind == suspectQueue}
	if s.ordered || s.kind == suspectQueue {
		opt.Gates = []engine.Gater[*delivery]{s}
	}
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*delivery]) {
		s.lane = l
		s.ackTimer = time.AfterFunc(time.Hour, func() { l.Post(func() { s.flush(false) }) })
		if s.kind == suspectQueue {
			feeding := context.WithoutCancel(ctx)
			feeding, stop := context.WithCancel(feeding)
			s.consumer = &consumer{stop: stop}
			s.feeding.Go(func() { s.runSuspects(feeding) })
			return
		}
		s.looking = time.AfterFunc(s.checkInterval(), s.scheduleCheck)
		s.startPassing(in)
	})
	s.end()
	if why := s.why.Load(); why != nil {
		return *why
	}
	return errLost
}

// end lets go of the channel.
func (s *source) end() {
	s.stopped = true
	s.callOff()
	close(s.over)
	s.ackTimer.Stop()
	if s.looking != nil {
		s.looking.Stop()
	}
	if s.consumer != nil && s.consumer.stop != nil {
		s.consumer.stop()
	}
	for d := range s.acks.untold {
		if d.what == open {
			s.keepPlace(d)
		}
		if s.kind == suspectQueue {
			s.r.client.outlived.add(d.id())
		}
		if !d.running { // else its handler still has the turn
			s.endTurn(d, false)
		}
	}
	if !s.calls.TryLock() { // the broker has not answered in time
		go func() {
			s.calls.Lock() // the call ends with the connection at the latest
			defer s.calls.Unlock()
			_ = s.ch.Close()
		}()
		return
	}
	defer s.calls.Unlock()
	_ = s.ch.Close() // all was said, or it is gone
}

// keepPlace remembers what is known of a message that has failed and keeps its place: it comes back as if it were new.
func (s *source) keepPlace(d *delivery) {
	st := d.state
	if d.m != nil && d.m.State != nil {
		st = d.m.State
	}
	if s.ordered && st != nil {
		s.r.client.places.Put(spot{s.queue, st.ID}, st)
	}
}

// spot is a message in its queue.
type spot struct{ queue, id string }

// placesMost is of how many messages it is known that they have failed and keep their place.
const placesMost = 200_000

func placesOf() engine.States[spot] { return engine.States[spot]{MaxMessages: placesMost} }

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *delivery { return s.in }

// Lost implements [driver.Source].
func (s *source) Lost() <-chan struct{} { return s.lost }

// Parse implements [driver.Source].
func (s *source) Parse(m *driver.Message[*delivery]) error {
	d := m.Record
	d.m, m.Seq, m.Place = m, d.tag, s.queue
	s.acks.add(d)
	s.readDelivery(d, m)
	if s.ordered && m.Key != 0 {
		s.lines[m.Key]++
	}
	return nil
}

// lineOf is the key of a message behind which others stand.
func (s *source) lineOf(d *delivery) uint64 {
	switch {
	case s.r.layout.policy.Order == redeliver.Blocking:
		return 1
	case d.key == "":
		return 0
	default:
		return max(2, maphash.String(seed, d.key))
	}
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*delivery]) {
	d := m.Record
	s.acks.settle(d)
	s.leaveLine(m)
	if d.over != nil || d.inTurn != nil { // see proven
		d.proven = s.acks.flush(1, true, s.ack) == nil
	}
	s.endTurn(d, true)
}

func (s *source) leaveLine(m *driver.Message[*delivery]) {
	if s.ordered && m.Key != 0 {
		if s.lines[m.Key]--; s.lines[m.Key] == 0 {
			delete(s.lines, m.Key)
		}
	}
}

const (
	// ackWait is how long a settled delivery waits for others to be acked with it.
	ackWait = 2 * time.Millisecond
	// lateAck is how long it may wait behind an open one before it is acked by itself.
	lateAck = 10 * time.Millisecond
)

// Commit implements [driver.Source]. No ack waits for company beside a suspect: it may kill the process.
func (s *source) Commit() { s.flush(s.r.client.turn.Closed()) }

// flush sends acks, where there are enough of them or they have waited long enough: a quorum queue writes every ack to its
// log. An error means that the channel is gone.
func (s *source) flush(force bool) {
	n := s.acks.pending()
	if n == 0 {
		return
	}
	now := time.Now()
	if s.settled.IsZero() {
		s.settled = now
		s.ackTimer.Reset(ackWait)
	}
	waited := now.Sub(s.settled)
	enough := max(1, s.window/2)
	if !force && n < enough && waited < ackWait {
		return
	}
	if s.acks.flush(enough, force || waited >= lateAck, s.ack) != nil {
		return
	}
	switch {
	case s.acks.pending() == 0 || waited >= lateAck:
		s.settled = time.Time{}
	case waited >= ackWait: // what is left waits behind an open delivery
		s.ackTimer.Reset(lateAck - waited)
	}
}

// ack sends an ack.
func (s *source) ack(tag uint64, multiple bool) error {
	s.acked = true
	return s.ch.Ack(tag, multiple)
}

// Return implements [driver.Source]. Where messages keep their places the channel's end hands back all of them, in order. A
// suspect is moved back to its queue at the end.
func (s *source) Return(m *driver.Message[*delivery], _ time.Duration, runs bool) {
	d := m.Record
	if d.what != open {
		return
	}
	s.leaveLine(m)
	s.keepPlace(d)
	if !d.running || s.ordered {
		s.endTurn(d, false)
	}
	if s.ordered || s.kind == suspectQueue || runs && s.stopped {
		return
	}
	s.back = append(s.back, d)
	if !s.giving {
		s.giveBack()
	}
}

// giveBack returns atOnce messages at a time, so that acks do not wait behind many of them, see applied.
const (
	atOnce        = 16
	giveBackEvery = 10 * time.Millisecond
)

// giveBack returns to the queue what no handler has, some at a time.
func (s *source) giveBack() {
	n := min(len(s.back), atOnce)
	for _, d := range s.back[:n] {
		if s.ch.Nack(d.tag, false, true) != nil {
			return
		}
		s.acks.handedBack(d)
	}
	s.back = append(s.back[:0], s.back[n:]...)
	if s.giving = n > 0; s.giving {
		time.AfterFunc(giveBackEvery, func() { s.lane.Post(s.giveBack) })
	}
}

// Stop implements [driver.Source]. Where messages keep their places the consumer stays: the next one would begin beside what
// runs here.
func (s *source) Stop() <-chan struct{} {
	s.stopped = true
	s.callOff()
	stopped := make(chan struct{})
	switch {
	case s.kind == suspectQueue:
		s.consumer.stop()
		go func() {
			defer close(stopped)
			s.calls.Lock()
			defer s.calls.Unlock()
			s.feeding.Wait()
		}()
	case s.ordered || s.consumer == nil:
		return nil
	default:
		c := s.consumer
		go func() {
			defer close(stopped)
			s.calls.Lock()
			defer s.calls.Unlock()
			_ = s.cancel(c) // else the channel is gone
			<-c.ended
		}()
	}
	return stopped
}

// Flush implements [driver.Source]. It returns when the queue has every ack. Suspects are acked one at a time, so no ack of
// theirs is kept, and a suspect that came for the proof would be charged.
func (s *source) Flush(ctx context.Context) {
	if s.kind == suspectQueue {
		s.acquit(ctx)
	}
	s.tasks.wait(ctx)
	s.back = nil // all goes back at once
	if s.acks.flush(1, true, s.ack) != nil {
		return
	}
	if s.acked && s.kind != suspectQueue && !s.awaitApplied(ctx) {
		return
	}
	if !s.ordered {
		// It would be handed back with the channel, too: from RabbitMQ 4.3 on it is not counted like this.
		_ = s.ch.Nack(0, true, true) // all of it; an error says that the channel is gone
	}
}

// awaitApplied reports whether the queue has every ack. It gives up when ctx ends: a queue without a majority does not answer.
func (s *source) awaitApplied(ctx context.Context) bool {
	var head *amqp091.Delivery
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.calls.Lock()
		defer s.calls.Unlock()
		head, err = applied(s.ch, s.queue, s.consumers+1)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		return false
	}
	if head != nil && !s.ordered {
		s.moveReturned(ctx, head)
	}
	return err == nil
}

// moveReturned writes a message that has come back often to its next place, as when it comes to a handler. Otherwise the broker
// would drop it when enough consumers have closed. A message that cannot be written comes back with the channel.
func (s *source) moveReturned(ctx context.Context, head *amqp091.Delivery) {
	m := &driver.Message[*delivery]{Record: new(slab).delivery(head)}
	_ = s.Parse(m) // always nil
	to := driver.Level
	switch m.Step {
	case driver.Hop:
	case driver.Isolate:
		to = driver.Suspects
	default:
		return
	}
	var st redeliver.State
	codec{s.r.layout}.State(m, &st)
	w := &write{store: s.r.store, ctx: ctx, d: m.Record}
	if _, err := w.writeTo(to, m.Step, &st); err == nil {
		s.acks.settle(m.Record)
		_ = s.acks.flush(1, true, s.ack) // an error says that the channel is gone
	}
}

// Begin implements [engine.Gater], where messages keep their places, and for suspects.
func (s *source) Begin(m *driver.Message[*delivery]) engine.Word {
	d := m.Record
	switch {
	case m.Step != driver.Handle:
		return engine.Begins
	case s.tired:
		return engine.NothingYet
	case d.inTurn != nil && !d.inTurn.beginOrSeek():
		return engine.NotYet
	}
	d.running = true
	s.running++
	return engine.Begins
}

// HandlerEnded implements [engine.Gater]: a suspect has its turn until it is settled.
func (s *source) HandlerEnded(*driver.Message[*delivery]) {}

// End implements [engine.Gater]. What has succeeded or moved on is settled next.
func (s *source) End(m *driver.Message[*delivery], how engine.Ending) {
	d := m.Record
	if d.running {
		d.running = false
		s.running--
	}
	if how.How == engine.Stays || how.How == engine.Abandoned || how.How == engine.NotBegun {
		s.endTurn(d, false)
	}
	if s.tired && s.running == 0 {
		s.finish()
	}
}

// EndLate implements [engine.LateGater]: a handler has answered whose channel has ended.
func (s *source) EndLate(m *driver.Message[*delivery]) { s.endTurn(m.Record, false) }
