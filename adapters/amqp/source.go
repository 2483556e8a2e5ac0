package amqp

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/notes"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// queueConfig describes a queue to read.
type queueConfig struct {
	kind     layout.Kind
	queue    string
	level    time.Duration // of a delay queue
	prefetch int
	first    *openChannel // opened by Subscribe
	silent   bool         // the last source ended with errSilent
	denied   bool         // the last try to read it was denied, which r.operations reports
	refusals int          // how many sources in a row have ended because the broker refused an ack
}

// method returns the request that reads the queue.
func (cfg *queueConfig) method() string {
	if cfg.kind == layout.SuspectQueue {
		return link.MethodGet
	}
	return link.MethodConsume
}

// source reads one queue on one channel. It ends with its channel and is never reused, because tags start again on a
// new channel, and a late ack would settle another message. It implements driver.Source.
//
// Only the lane's goroutine uses the fields, except where noted. One goroutine passes on deliveries, another waits for
// the end of the channel.
type source struct {
	queueConfig
	r       *reader
	ch      *amqp091.Channel
	in      chan *delivery
	lane    driver.Lane[*delivery]
	ordered bool         // the policy is ordered
	notes   *notes.Queue // of an ordered queue

	lost            chan struct{} // closed when the channel has ended
	laneEnded       chan struct{} // closed when the lane has ended
	finish          context.CancelFunc
	suspectCtx      context.Context // no suspect gets a turn after its end
	cancelSuspects  context.CancelFunc
	endReason       atomic.Pointer[error] // why the channel or the reading has ended
	tasks           tasks                 // Flush waits for them
	suspectsRunning sync.WaitGroup

	intake       intake
	hold         hold
	ackTimer     *time.Timer
	settledSince time.Time // since when settled deliveries wait for their ack

	acks            acks
	toReturn        []*delivery // to be returned
	returnScheduled bool        // a timer runs for that
	running         int         // messages with handlers, in ordered queues
	ending          bool        // the source of an ordered queue ends soon: nothing begins any more
	stopped         bool
	mayBeForgotten  bool      // see link.ForgetsConsumers
	lastArrival     time.Time // of a delivery, or of the start
	acked           bool      // an ack was sent
	firstAck        time.Time
	accepted        atomic.Bool // the broker has accepted every ack
}

var (
	_    driver.Source[*delivery]    = (*source)(nil)
	_    engine.Gater[*delivery]     = (*source)(nil)
	_    engine.LateGater[*delivery] = (*source)(nil)
	seed                             = maphash.MakeSeed()
)

// The regular ends of a source.
var (
	errHeldTooLong = errors.New("amqp: messages have waited in the process for half of the consumer timeout; they come back")
	errPaused      = errors.New("amqp: nothing may begin; the messages wait in the queue")
	errSilent      = errors.New("amqp: no message has come for a while; the broker may have forgotten the consumer")
)

// errAccepted ends a cautious source, see refusals.go.
var errAccepted = errors.New("amqp: the broker accepts acks again")

// errForgotten is reported when messages come back at the start of a new channel, after a silence on the old one.
var errForgotten = errors.New("amqp: the broker kept messages from the consumer, which it confused with an older one: the queue was deleted and declared again at once")

var errCancelled = errors.New("the broker cancelled the consumer: the queue was deleted, or its leader moved")

// errLost is the error of a source whose channel has ended without a reason.
var errLost = errors.New("amqp: the channel is closed; the message comes back")

func newSource(r *reader, cfg queueConfig, ch *amqp091.Channel) *source {
	s := &source{
		queueConfig: cfg, r: r, ch: ch, in: make(chan *delivery, min(256, cfg.prefetch)), ordered: cfg.kind == layout.MainQueue && r.layout.Ordered(),
		lost: make(chan struct{}), laneEnded: make(chan struct{}), lastArrival: time.Now(),
	}
	s.suspectCtx, s.cancelSuspects = context.WithCancel(r.values)
	window := cfg.firstWindow(r.client.cfg.RetryBytes)
	if s.ordered { // another window would change the order in which the messages come back
		window = cfg.prefetch
	}
	s.intake = newIntake(s, window)
	s.hold = hold{s: s, lastAgeCheck: time.Now()}
	if cfg.kind == layout.SuspectQueue {
		s.in = make(chan *delivery)
	}
	if s.ordered {
		s.notes = r.newNotes(cfg.prefetch)
	}
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	go func() {
		if err := <-closed; err != nil {
			s.fail(err)
		}
		close(s.lost)
		s.cancelSuspects()
	}()
	return s
}

// cancelled returns why the broker may have cancelled the consumer, which AMQP does not say. From RabbitMQ 4.3 on it also does
// that to a consumer whose messages time out. Only the lane's goroutine calls it.
func (s *source) cancelled() error {
	if s.acks.oldest == nil {
		return errCancelled
	}
	return fmt.Errorf("%w; or, from RabbitMQ 4.3 on, a message was unacked for longer than the broker's consumer_timeout: the oldest one has been here for %s",
		errCancelled, time.Since(s.acks.oldest.arrived).Round(time.Second))
}

// fail sets the reason why the source ends. The first one counts.
func (s *source) fail(err error) { s.endReason.CompareAndSwap(nil, &err) }

// run reads the queue until ctx or the source ends. It returns the reason.
func (s *source) run(ctx context.Context, e *engine.Engine[*delivery], in <-chan amqp091.Delivery) error {
	ctx, s.finish = context.WithCancel(ctx)
	defer s.finish()
	maxMessages := 2*s.prefetch + 16 // the broker's prefetch is the bound
	opt := engine.LaneOptions[*delivery]{MaxAhead: maxMessages, MaxWaiting: maxMessages, DrainTimeout: s.r.client.cfg.DrainTimeout, Exclusive: s.kind == layout.SuspectQueue}
	if s.ordered || s.kind == layout.SuspectQueue {
		opt.Gaters = []engine.Gater[*delivery]{s}
	}
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*delivery]) {
		s.lane = l
		s.ackTimer = time.AfterFunc(time.Hour, func() { l.Post(func() { s.flushAcks(false) }) })
		if s.kind == layout.SuspectQueue {
			s.suspectsRunning.Go(suspectFeed{s}.run)
			return
		}
		s.hold.timer = time.AfterFunc(s.hold.interval(), s.hold.postCheck)
		go s.intake.run(in)
	})
	s.endChannel()
	if why := s.endReason.Load(); why != nil {
		return *why
	}
	return errLost
}

// endChannel closes the channel.
func (s *source) endChannel() {
	s.stopped = true
	s.cancelSuspects()
	close(s.laneEnded)
	s.ackTimer.Stop()
	if s.hold.timer != nil {
		s.hold.timer.Stop()
	}
	for d := range s.acks.unsent {
		if d.ackState == ackOpen {
			s.rememberState(d)
		}
		if s.kind == layout.SuspectQueue {
			s.r.client.lostSuspects.Add(d.id())
		}
		if !d.running { // otherwise its handler still has the turn
			s.endTurn(d)
		}
	}
	closeChannel := func() {
		defer func() { <-s.intake.calls }()
		if s.ordered { // first: the next consumer of the queue reads all notes
			s.notes.Close()
		}
		_ = s.ch.Close() // everything was sent, or the channel has ended
	}
	select {
	case s.intake.calls <- struct{}{}:
		closeChannel()
	default: // the broker has not answered in time
		go func() {
			s.intake.calls <- struct{}{} // the call ends with the connection at the latest
			closeChannel()
		}()
	}
}

// placeKey identifies a message in its queue. noted reports whether its note has its state.
type placeKey struct {
	queue, message string
	noted          bool
}

// maxPlaces bounds the remembered states of ordered messages.
const maxPlaces = 200_000

func placesOf() engine.States[placeKey] { return engine.States[placeKey]{MaxMessages: maxPlaces} }

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *delivery { return s.in }

// Lost implements [driver.Source].
func (s *source) Lost() <-chan struct{} { return s.lost }

// Parse implements [driver.Source].
func (s *source) Parse(m *driver.Message[*delivery]) error {
	d := m.Record
	d.m, m.Seq, m.Place, m.Size = m, d.tag, s.queue, d.size
	s.acks.add(d)
	if s.silent {
		s.silent = false
		if d.redelivered && d.arrived.Sub(s.lastArrival) < maxSilence/10 {
			s.r.disconnected(s.queue, errForgotten)
			s.r.reportConsuming(s.queue, s.ch, false)
		}
	}
	s.lastArrival = d.arrived
	(&arrival{s, d, m}).read()
	return nil
}

// orderKey returns the key by which messages run one after another, or 0.
func (r *reader) orderKey(d *delivery) uint64 {
	switch {
	case r.layout.Policy.Order == redeliver.OrderBlocking:
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
	if d.note != nil {
		s.settleNoted(d)
		return
	}
	if d.endQueueTurn != nil { // see ackWritten
		d.ackWritten.Store(s.acks.flush(1, true, s.ack) == nil)
	}
	s.endTurn(d)
}

const (
	// ackWait is how long a settled delivery waits for others to be acked with it.
	ackWait = 10 * time.Millisecond
	// lateAck is how long a settled delivery waits behind an unsettled one before it gets its own ack. With shorter
	// bounds, messages that always fail were slower: docs/evidence/benchmarks.md.
	lateAck = 20 * time.Millisecond
)

// Commit implements [driver.Source]. It sends all acks at once while a suspect runs, which may kill the process.
func (s *source) Commit() { s.flushAcks(s.r.client.turn.Closed()) }

// flushAcks sends acks if there are enough of them or they have waited long enough, because a quorum queue writes every
// ack to its log.
func (s *source) flushAcks(force bool) {
	n := s.acks.pending()
	if n == 0 {
		return
	}
	now := time.Now()
	if s.settledSince.IsZero() {
		s.settledSince = now
		s.ackTimer.Reset(ackWait)
	}
	waited := now.Sub(s.settledSince)
	enough := max(1, s.intake.window/2)
	if !force && n < enough && waited < ackWait {
		return
	}
	if s.acks.flush(enough, force || waited >= lateAck, s.ack) != nil {
		return
	}
	switch {
	case s.acks.pending() == 0 || waited >= lateAck:
		s.settledSince = time.Time{}
	case waited >= ackWait: // the others wait behind an unsettled delivery
		s.ackTimer.Reset(lateAck - waited)
	}
}

// ack sends an ack.
func (s *source) ack(tag uint64, multiple bool) error {
	if !s.acked {
		s.acked, s.firstAck = true, time.Now()
	}
	if s.isCautious() && s.kind != layout.SuspectQueue {
		s.finish() // Flush asks whether the broker has accepted it
	}
	return s.ch.Ack(tag, multiple)
}

// Return implements [driver.Source]. It leaves ordered messages to the end of their channel, which returns them in
// order, and suspects to Flush.
func (s *source) Return(m *driver.Message[*delivery], _ time.Duration, runs bool) {
	d := m.Record
	if d.ackState != ackOpen {
		return
	}
	if s.ordered {
		s.keepNote(d, m.State, true)
		return
	}
	if !d.running {
		s.endTurn(d)
	}
	if s.kind == layout.SuspectQueue || runs && s.stopped {
		return
	}
	s.toReturn = append(s.toReturn, d)
	if !s.returnScheduled {
		s.returnSome()
	}
}

// Limits of returnSome. Acks must not wait behind many returns, see confirmAcks.
const (
	maxReturnsAtOnce = 16
	returnInterval   = 10 * time.Millisecond
)

// returnSome returns messages that no handler has, some at a time.
func (s *source) returnSome() {
	n := min(len(s.toReturn), maxReturnsAtOnce)
	for _, d := range s.toReturn[:n] {
		if s.ch.Nack(d.tag, false, true) != nil {
			return
		}
		s.acks.remove(d)
	}
	s.toReturn = append(s.toReturn[:0], s.toReturn[n:]...)
	if s.returnScheduled = n > 0; s.returnScheduled {
		time.AfterFunc(returnInterval, func() { s.lane.Post(s.returnSome) })
	}
}

// Stop implements [driver.Source]. It keeps the consumer of an ordered queue: another process would begin beside
// the messages that run here.
func (s *source) Stop() <-chan struct{} {
	s.stopped = true
	s.cancelSuspects()
	switch {
	case s.kind == layout.SuspectQueue:
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.intake.call(s.suspectsRunning.Wait)
		}()
		return stopped
	case s.ordered:
		return nil
	default:
		return s.intake.stop()
	}
}

// Flush implements [driver.Source]. It returns when the queue has every ack. It does not check those of suspects,
// which are sent one by one: a suspect that the check delivers is charged.
func (s *source) Flush(ctx context.Context) {
	if s.kind == layout.SuspectQueue {
		suspectFeed{s}.requeue(ctx)
	}
	s.tasks.wait(ctx)
	s.toReturn = nil // the channel returns them all
	if s.acks.flush(1, true, s.ack) != nil {
		return
	}
	if s.acked && s.kind != layout.SuspectQueue {
		if !s.awaitApplied(ctx) {
			return
		}
		s.accepted.Store(true)
		if s.isCautious() {
			s.fail(errAccepted)
		}
	}
	if !s.ordered {
		// Since RabbitMQ 4.3 this return is not counted, unlike the end of the channel.
		_ = s.ch.Nack(0, true, true) // all messages; an error means that the channel has ended
	}
}

// awaitApplied reports whether the queue has every ack. It stops waiting when ctx ends, because a queue without a
// majority does not answer.
func (s *source) awaitApplied(ctx context.Context) bool {
	var head *amqp091.Delivery
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.intake.call(func() { head, err = confirmAcks(s.ch, s.queue) })
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

// moveReturned writes a message that came back often to its next place, as if it had come to a handler. Otherwise the
// broker might drop it when several consumers close. If the write fails, the message comes back with the channel.
func (s *source) moveReturned(ctx context.Context, head *amqp091.Delivery) {
	m := &driver.Message[*delivery]{Record: new(slab).delivery(head)}
	_ = s.Parse(m) // always nil
	to := driver.PlaceLevel
	switch m.Step {
	case driver.StepHop:
	case driver.StepIsolate:
		to = driver.PlaceSuspects
	default:
		return
	}
	if s.rewrite(ctx, to, m) {
		s.acks.settle(m.Record)
		_ = s.acks.flush(1, true, s.ack) // an error means that the channel has ended
	}
}

// rewrite writes a message to another place and reports whether the broker has confirmed the copy.
func (s *source) rewrite(ctx context.Context, to driver.Place, m *driver.Message[*delivery]) bool {
	var st redeliver.State
	if s.r.codec().State(m, &st); m.State != nil {
		st = *m.State
	}
	st.Policy = s.r.sub.Fingerprint()
	written := make(driver.Result, 1)
	s.r.store.Write(ctx, to, m, &st, written)
	select {
	case err := <-written:
		return err == nil
	case <-ctx.Done():
		return false
	}
}

// Accept implements [driver.Source]. The broker's prefetch is the bound, so n is 0 only if nothing may begin: a gate
// is closed, see hold, or a suspect runs. While a suspect runs, the prefetched messages stay: the broker counts
// returns, and the next suspect may follow at once.
func (s *source) Accept(n int) {
	if n == 0 && s.r.client.turn.Closed() {
		s.flushAcks(true) // see Commit
	}
	switch {
	case s.stopped || s.kind == layout.SuspectQueue:
	case s.hold.paused && n > 0:
		s.hold.check()
	case !s.hold.paused && s.kind != layout.MainQueue && !s.isCautious():
		if w := fitWindow(s.intake.window, s.prefetch, s.acks.unacked, s.acks.bytes, s.r.client.cfg.RetryBytes); w != s.intake.window {
			s.intake.change(w)
		}
	}
}

// Begin implements [engine.Gater], for ordered queues and for suspects.
func (s *source) Begin(m *driver.Message[*delivery]) engine.Admission {
	d := m.Record
	switch {
	case s.ordered && s.isCautious() && d.tag > 1: // it has only one turn, and ends after the ack of the first
		return engine.NotYet
	case m.Step != driver.StepHandle:
		d.attempt++
		return engine.Begins
	case s.ending:
		return engine.NothingYet
	case d.writes > 0:
		return engine.NotYet
	case d.suspect && !d.hasTurn.Load():
		s.requestTurn(d)
		return engine.NotYet
	}
	d.running = true
	d.attempt++
	s.running++
	return engine.Begins
}

// maxWriteTurn is how long a suspect keeps its turn after its handler has ended, unless it is settled earlier.
const maxWriteTurn = 10 * time.Second

// HandlerEnded implements [engine.Gater]. A suspect keeps its turn until it is settled, so that the broker has its ack
// before another message may kill the process. But nothing else of the client runs meanwhile, and its copy cannot be
// written while the DLQ is full or has no leader. So its turn ends after maxWriteTurn.
func (s *source) HandlerEnded(m *driver.Message[*delivery]) {
	d, attempt := m.Record, m.Record.attempt
	endTurn := func() {
		if d.attempt == attempt && (d.running || m.Step != driver.StepHandle) { // it is still being written
			s.endTurn(d)
		}
	}
	time.AfterFunc(maxWriteTurn, func() {
		if !s.lane.Post(endTurn) {
			endTurn() // the lane has ended, so nothing else changes d
		}
	})
}

// End implements [engine.Gater]. A message that succeeded or moved on is settled next.
func (s *source) End(m *driver.Message[*delivery], how engine.Ending) {
	d := m.Record
	if d.running {
		d.running = false
		s.running--
	}
	switch how.Kind {
	case engine.Stays:
		if s.ordered {
			s.keepNote(d, how.State, false)
			break
		}
		s.endTurn(d)
	case engine.Unsettled, engine.Abandoned, engine.NotBegun:
		s.endTurn(d)
	case engine.Acked, engine.Moved, engine.DeadLettered: // Settle follows
	}
	if s.ending && s.running == 0 {
		s.finish()
	}
}

// EndLate implements [engine.LateGater]. The handler returned after the end of its channel.
func (s *source) EndLate(m *driver.Message[*delivery]) { s.endTurn(m.Record) }
