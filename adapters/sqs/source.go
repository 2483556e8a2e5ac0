package sqs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/notes"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// source reads one queue: the queue of the subscription or its queue of suspects. It implements driver.Source.
//
// Heartbeats hide a message from others while it is held. Pollers receive messages, and the lane's goroutine settles
// and returns them. Deletions and heartbeats run in their own goroutines.
type source struct {
	r      *reader
	client *client
	layout *layout
	sub    *engine.Subscription
	queue  *api.Queue

	in                chan *delivery
	lane              driver.Lane[*delivery]
	parsed            int // messages that the lane has parsed since its last Accept
	intake            *intake
	groups            *groups // nil on a standard queue
	visibilityChanger *visibilityChanger
	deleter           *deleter
	lostSuspects      engine.SuspectLosses // by MessageId
	lostReceives      lostReceives         // of suspects
	notes             *notes.Queue         // nil if this is not a FIFO queue with messages of its own

	rewriteAfter, isolateAfter int // numbers of receives, see receiveLimits

	polling            sync.WaitGroup
	heartbeats         sync.WaitGroup
	receiveCtx         context.Context // its end cuts all receives short
	cancelReceives     context.CancelFunc
	longReceiveCtx     context.Context // its end cuts the receives that Close does not wait for
	cancelLongReceives context.CancelFunc
	pollCtx            context.Context // after its end nothing more is received
	stopPolling        context.CancelFunc
	ending             chan struct{} // closed when the lane stops reading
	ended              chan struct{} // closed at the end
	notesEnded         chan struct{} // closed when no note is read any more

	mu        sync.Mutex
	held      map[string]*delivery   // by MessageId
	lines     map[string][]*delivery // of a FIFO queue: unsettled messages by group, in order
	returned  map[string]int         // of a FIFO queue: how often a message was received, when this process gave it back
	bytes     int
	unsettled int // held messages
	settled   int // held messages that are not yet deleted
	returning int // messages that are being returned
	stopped   bool
	changed   chan struct{} // signals a change of settled or returning
}

var _ driver.Source[*delivery] = (*source)(nil)

func newSource(r *reader, q *api.Queue) *source {
	cfg := &r.client.cfg
	s := &source{
		r: r, client: r.client, layout: r.layout, sub: r.sub, queue: q,
		in: make(chan *delivery, api.MaxBatch*cfg.Pollers), groups: newGroups(q),
		ending: make(chan struct{}), ended: make(chan struct{}), notesEnded: make(chan struct{}), changed: make(chan struct{}, 1),
		held: make(map[string]*delivery), lines: make(map[string][]*delivery), returned: make(map[string]int),
	}
	s.rewriteAfter, s.isolateAfter = receiveLimits(r.layout.main)
	s.intake = newIntake(cfg.maxAhead(), cfg.Pollers, s.heldRoom)
	s.receiveCtx, s.cancelReceives = context.WithCancel(r.values)
	s.longReceiveCtx, s.cancelLongReceives = context.WithCancel(s.receiveCtx)
	s.pollCtx, s.stopPolling = context.WithCancel(r.values)
	s.visibilityChanger = newVisibilityChanger(q, cfg.VisibilityTimeout, cfg.SendTimeout)
	s.deleter = newDeleter(q, cfg.SendTimeout, s.ended, s.deleted)
	if s.readsSuspects() { // the next suspect waits for the deletion
		s.deleter.batches.StopLingering()
	} else if q.FIFO {
		s.notes = notes.New(notes.Options{
			Queue: r.layout.place, Group: q.Name, Keys: cfg.StateKeys, Visible: cfg.VisibilityTimeout, Timeout: cfg.SendTimeout, Kept: q.Retention,
			Send: s.sendNote,
		})
	}
	return s
}

// sendNote writes a note. Its message waits meanwhile.
func (s *source) sendNote(o wire.Outgoing, done func(error)) {
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	s.r.store.postCreating(ctx, s.layout.place, o, func(err error) {
		cancel()
		done(err)
	})
}

// readsSuspects reports whether this is the queue of suspects.
func (s *source) readsSuspects() bool { return s.queue.Kind == api.SuspectQueue }

// run reads the queue with its own lane until ctx ends.
func (s *source) run(ctx context.Context, e *engine.Engine[*delivery]) {
	cfg := &s.client.cfg
	opt := engine.LaneOptions[*delivery]{
		MaxAhead: cfg.maxAhead(), MaxWaiting: s.client.maxHeld.messages, DrainTimeout: cfg.DrainTimeout,
	}
	opt.Exclusive = s.readsSuspects()
	e.RunLane(ctx, s.r.values, s, opt, func(l driver.Lane[*delivery]) {
		s.lane = l
		s.startReceiving()
	})
}

// startReceiving starts the pollers and heartbeats.
func (s *source) startReceiving() {
	s.heartbeats.Go(s.runHeartbeats)
	if s.readsSuspects() {
		s.polling.Go(func() { s.runSuspects(s.pollCtx) })
		return
	}
	// Messages of receives that had begun before the pause come later, so everything in hand is returned repeatedly.
	context.AfterFunc(s.pollCtx, s.intake.wakePollers)
	s.polling.Go(func() { s.r.pause.Run(s.pollCtx, func() { s.lane.Post(func() { s.lane.ReturnUnrun(nil) }) }) })
	for n := range s.client.cfg.Pollers {
		s.polling.Go(func() { s.poll(s.pollCtx, n) })
	}
	if s.groups != nil {
		s.polling.Go(func() { s.watchFreedGroups(s.pollCtx) })
	}
	if s.notes != nil {
		ctx, cancel := context.WithCancel(s.r.values)
		go func() {
			defer close(s.notesEnded)
			s.notes.Run(ctx)
		}()
		s.heartbeats.Go(func() {
			<-s.ended
			cancel()
		})
	}
}

// heldRoom returns how many messages are settled and not yet deleted, and how many more may be held.
func (s *source) heldRoom() (settled, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled, s.client.maxHeld.room(len(s.held), s.bytes, s.queue.MaxSize)
}

// registerMessages registers received messages as held. It returns those that the lane does not have yet.
func (s *source) registerMessages(msgs []types.Message, at time.Time, hidden time.Duration) []*delivery {
	fresh := make([]*delivery, 0, len(msgs))
	for i := range msgs {
		if d := s.registerMessage(&msgs[i], at, hidden); d != nil {
			msgs[len(fresh)] = msgs[i]
			fresh = append(fresh, d)
		}
	}
	s.findNotes(fresh)
	for i := range msgs[:len(fresh)] {
		s.readDelivery(fresh[i], &msgs[i], at)
	}
	return fresh
}

// registerMessage registers m; nil means the lane has it.
func (s *source) registerMessage(m *types.Message, at time.Time, hidden time.Duration) *delivery {
	id := aws.ToString(m.MessageId)
	s.mu.Lock()
	for had := s.held[id]; had != nil; had = s.held[id] {
		if had.settled || wire.ReceiveCountOf(m) <= s.maxReceives() { // keep it, with the new receipt
			had.setReceipt(m, at, hidden)
			had.receives = wire.ReceiveCountOf(m)
			s.mu.Unlock()
			return nil
		}
		s.mu.Unlock()
		s.dropLost(had, nil) // it came back too often to be kept
		s.mu.Lock()
	}
	d := &delivery{source: s, id: id, bytes: wire.MessageSize(aws.ToString(m.Body), m.MessageAttributes), keptState: s.client.hidden.Take(id), receives: wire.ReceiveCountOf(m)}
	if begun := wire.SentAt(m); s.queue.Retention() > 0 && !begun.IsZero() {
		d.expires = begun.Add(s.queue.Retention())
	}
	d.setReceipt(m, at, hidden)
	if s.readsSuspects() {
		d.answered, d.removed = make(chan struct{}, 1), make(chan struct{})
	}
	s.held[id] = d
	s.bytes += d.bytes
	s.unsettled++
	d.first = true
	if s.queue.FIFO { // a group on a standard queue has no order
		d.group = m.Attributes[wire.GroupID]
		d.first = len(s.lines[d.group]) == 0
		// If the next receive is ours, nobody else had it meanwhile.
		d.unknown = d.receives > 1 && d.receives != s.returned[id]+1
		delete(s.returned, id)
		s.lines[d.group] = append(s.lines[d.group], d)
		s.groups.addLocked(d.group)
	}
	s.mu.Unlock()
	return d
}

// maxReceives returns the number of receives after which a held message that comes again is dropped.
func (s *source) maxReceives() int {
	if s.readsSuspects() || s.queue.FIFO {
		return s.isolateAfter
	}
	return s.rewriteAfter
}

// passToLane passes messages to the lane, or returns them if nothing may begin now.
func (s *source) passToLane(all []*delivery) {
	if !s.readsSuspects() && s.client.turn.Closed() {
		s.intake.releaseRoom(len(all))
		s.returnUnparsed(all)
		return
	}
	for i, d := range all {
		select {
		case s.in <- d:
		case <-s.ending:
			s.intake.releaseRoom(len(all) - i)
			s.returnUnparsed(all[i:])
			return
		}
	}
}

// returnUnparsed returns messages that the lane does not have yet, the last first.
func (s *source) returnUnparsed(all []*delivery) {
	for _, d := range slices.Backward(all) {
		s.returnMessage(d, 0, false)
	}
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *delivery { return s.in }

// Lost implements [driver.Source]. It returns nil, because messages are lost one by one.
func (s *source) Lost() <-chan struct{} { return nil }

// Accept implements [driver.Source].
func (s *source) Accept(n int) {
	s.intake.setRoom(n, s.parsed)
	s.parsed = 0
}

// Parse implements [driver.Source].
func (s *source) Parse(m *driver.Message[*delivery]) error {
	d := m.Record
	s.parsed++
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.gone {
		return driver.ErrSettled
	}
	d.m = m
	m.Step, m.Place, m.Alone, m.Size = d.step, s.queue.Name, s.readsSuspects(), d.bytes
	if d.group != "" {
		m.Key = groupHash(d.group)
	}
	if d.state != nil {
		m.Returned, m.Retry = true, d.state.Attempts > 0
	}
	if d.hold {
		m.Until, m.InPlace = d.state.Due, s.queue.FIFO
	}
	if d.step == driver.StepDeadLetter {
		m.Err = &redeliver.CrashedError{Crashes: d.crashes}
	}
	return nil
}

// Settle implements [driver.Source]. The next message of a group does not wait for the deletion. If the process dies
// before it, both run again, in order.
func (s *source) Settle(m *driver.Message[*delivery]) { s.settle(m.Record) }

// settle starts the deletion of a message, unless that has begun. It reports whether it did.
func (s *source) settle(d *delivery) bool {
	s.mu.Lock()
	begins := !d.gone && !d.settled
	if begins {
		d.settled = true
		s.settled++
		s.removeUnsettledLocked(d)
	}
	s.mu.Unlock()
	if begins {
		s.deleter.add(d)
	}
	return begins
}

// removeSuspect calls removed when a message that was written to the suspects is deleted here. Until then the next message
// of its group waits: if that killed the process at once, the suspect would come back as the first of its group each time,
// and the killer would never be the first.
func (s *source) removeSuspect(d *delivery, removed func()) {
	s.mu.Lock()
	d.suspect, d.onDeleted = true, removed
	s.mu.Unlock()
	if !s.settle(d) { // it is lost
		removed()
	}
}

// removeUnsettledLocked removes a settled or lost message from the unsettled ones and from its group's line. It ends
// the wait for a suspect's answer, even if the handler of a lost suspect still runs.
func (s *source) removeUnsettledLocked(d *delivery) {
	s.unsettled--
	d.signalAnswered()
	if line := s.lines[d.group]; d.group != "" {
		line = slices.DeleteFunc(line, func(other *delivery) bool { return other == d })
		if s.lines[d.group] = line; len(line) == 0 {
			delete(s.lines, d.group)
		}
	}
	if s.stopped && s.unsettled == 0 { // otherwise long receives have time to end
		s.cancelLongReceives()
	}
}

// deleted drops a settled message that is deleted, or that this process can no longer delete.
func (s *source) deleted(d *delivery) {
	s.mu.Lock()
	s.settled--
	s.dropLocked(d)
	suspect, onDeleted := d.suspect, d.onDeleted
	s.mu.Unlock()
	if onDeleted != nil {
		onDeleted()
	}
	s.intake.wakePollers()
	if suspect {
		// Run the suspect only now. If it killed the process before the original is deleted, both would exist.
		s.r.wakeSuspects()
	}
	s.signalChanged()
}

// dropLocked drops a message.
func (s *source) dropLocked(d *delivery) {
	d.gone = true
	if s.held[d.id] == d {
		delete(s.held, d.id)
	}
	if d.removed != nil {
		close(d.removed)
	}
	s.bytes -= d.bytes
	s.groups.removeLocked(d.group)
}

func (s *source) signalChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Return implements [driver.Source]. If runs is set, the handler may still run, so the message stays hidden until its
// visibility timeout ends.
func (s *source) Return(m *driver.Message[*delivery], wait time.Duration, runs bool) {
	s.returnMessage(m.Record, wait, runs)
}

// returnMessage returns a message to the queue. Others can receive it after wait or, if hidden is set, when its
// visibility timeout ends. It writes a suspect again, unless it goes to the DLQ: the copy would lose its count.
func (s *source) returnMessage(d *delivery, wait time.Duration, hidden bool) {
	if s.readsSuspects() && d.step != driver.StepDeadLetter {
		s.requeueSuspect(d)
		return
	}
	s.mu.Lock()
	if d.gone || d.settled {
		s.mu.Unlock()
		return
	}
	s.dropReturnedLocked(d, wait)
	s.mu.Unlock()
	s.intake.wakePollers()
	if !hidden {
		s.makeVisible(d, wait)
	}
}

// maxReturned bounds the returned messages whose receives are remembered.
const maxReturned = 10_000

// dropReturnedLocked drops a message that will come back after wait, and keeps its waiting state.
func (s *source) dropReturnedLocked(d *delivery, wait time.Duration) {
	if d.keptState != nil {
		s.client.hidden.Put(d.id, d.keptState)
	}
	if s.notes != nil {
		if len(s.returned) >= maxReturned {
			clear(s.returned)
		}
		if !d.unknown { // otherwise its note may be unread
			s.returned[d.id] = d.receives
		}
		s.notes.Release(d.id, wait)
	}
	s.removeUnsettledLocked(d)
	s.dropLocked(d)
}

// makeVisible makes a message visible to others after wait.
func (s *source) makeVisible(d *delivery, wait time.Duration) {
	s.mu.Lock()
	s.returning++
	s.mu.Unlock()
	s.visibilityChanger.makeVisible(&d.visibility, time.Now().Add(wait), func(error) { // after an error its visibility timeout ends
		s.groups.wakePoller()
		s.mu.Lock()
		s.returning--
		s.mu.Unlock()
		s.signalChanged()
	})
}

// Commit implements [driver.Source]. Deletions are batched separately.
func (s *source) Commit() {}

// Stop implements [driver.Source].
func (s *source) Stop() <-chan struct{} {
	s.stopPolling()
	s.mu.Lock()
	s.stopped = true
	if s.unsettled == 0 {
		s.cancelLongReceives()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.polling.Wait()
		close(done)
	}()
	return done
}

// Flush implements [driver.Source].
func (s *source) Flush(ctx context.Context) {
	close(s.ending)
	if s.readsSuspects() { // a receive that is cut short may count as a crash of its message
		defer context.AfterFunc(ctx, s.cancelReceives)()
	} else {
		s.cancelReceives()
	}
	s.deleter.batches.StopLingering()
	s.visibilityChanger.batches.StopLingering()
	s.polling.Wait() // pollers return their messages
	var rest []*delivery
	for len(s.in) > 0 {
		rest = append(rest, <-s.in)
	}
	s.returnUnparsed(rest)
	for s.isBusy() {
		select {
		case <-s.changed:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(s.ended)
	s.heartbeats.Wait()
	if s.notes != nil {
		select {
		case <-s.notesEnded:
		case <-ctx.Done():
		}
	}
}

func (s *source) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled > 0 || s.returning > 0
}
