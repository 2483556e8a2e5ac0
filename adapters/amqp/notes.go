package amqp

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/notes"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// A failed message of an ordered queue keeps its place, so its state is in a note, see package notes. The note is written before
// the next attempt may begin, and removed after the message's ack. A process may die between two of these steps:
//
//	the attempt has ended, the note is not written       the attempt runs again
//	the note is written, the attempt has not begun       the next process begins it, when it is due
//	the message is acked, the note is not removed        the next process removes it, see notes.Queue.DropUntaken
//	the note is removed, the message is not acked        its attempts begin again; only if an equal message waits behind it
//
// If the note cannot be written, the process counts the attempts in memory, and reports that.
//
// A suspect also runs in its place. The broker's delivery count is no evidence against it, because the count also rises for the
// messages behind one that kills its process. So a suspect takes the client's turn, and its note charges it with a crash before it
// begins. When its process has survived, the note is corrected before anything else begins.

// noteTimeout bounds one try to read the notes, or to write one.
const noteTimeout = 10 * time.Second

// newNotes returns the notes of one source, which has at most n messages.
func (r *reader) newNotes(n int) *notes.Queue {
	return notes.New(notes.Options{
		Name: r.layout.Place(), Group: r.layout.Queue, Max: 2*n + 16, Keys: r.client.cfg.StateKeys,
		Link: r.client.consuming, Sender: r.client.forwarded, Declare: r.store.declare, Record: r.recordNotes,
	})
}

// recordNotes records the result of a request about notes. The attempts survive in memory meanwhile, so every failure that lasts
// is reported.
func (r *reader) recordNotes(method, place string, err error) {
	if err == nil || link.IsAnswer(err) {
		r.recordResult(method, place, err)
	} else if !errors.Is(err, link.ErrClosed) && !errors.Is(err, context.Canceled) {
		r.operations.Failed(engine.Operation{Name: method, Place: place}, err, false, false)
	}
}

// reportInMemory reports the first of several notes that cannot be written.
func (r *reader) reportInMemory(err error) {
	if errors.Is(err, link.ErrClosed) {
		return
	}
	r.mu.Lock()
	first := err != nil && !r.inMemory
	r.inMemory = err != nil
	r.mu.Unlock()
	if first {
		r.sub.EmitChange(redeliver.ChangeAttemptsInMemory, "the note of a message that keeps its place cannot be written; its attempts begin again in the next process", err)
	}
}

// openNotes reads the notes. If it fails, the first note that is written tries again.
func (s *source) openNotes() {
	ctx, cancel := context.WithTimeout(s.suspectCtx, noteTimeout)
	defer cancel()
	_ = s.notes.Open(ctx) // it was recorded
}

// identity returns what identifies a message whenever it comes.
func (d *delivery) identity() string { return d.StateID() + " " + wire.Digest(&d.Delivery) }

// readNote reads the note of a message that came back.
func (a *arrival) readNote() {
	d := a.d
	n, st, crashes := a.notes.Take(d.identity)
	if n == nil {
		return
	}
	d.note, d.crashes = n, crashes
	if st.Attempts == 0 && st.PostponedSince.IsZero() {
		return
	}
	var own redeliver.State
	a.r.codec().State(a.m, &own)
	st.ID, st.Group, st.Origin, st.DeadLetter = own.ID, own.Group, own.Origin, own.DeadLetter
	if st.Source.Timestamp.IsZero() {
		st.Source = own.Source
	}
	st.Expires = wire.ExpiryOf(d.Own(), wire.FirstSeen(&st))
	if latest := d.arrived.Add(a.r.client.cfg.ConsumerTimeout / 2); st.Due.After(latest) { // no policy waits longer
		st.Due = latest
	}
	a.r.sub.CheckPolicyOf(&st)
	d.state = &st
}

// keepNote writes the note of a message that stays in its place, or returns to its queue, with its state. If the message has the
// turn, it gives that back then, even if st is nil, because no attempt has counted. returns leaves out what the note has.
func (s *source) keepNote(d *delivery, st *redeliver.State, returns bool) {
	held := d.hasTurn.Swap(false)
	if !held && (st == nil || st.Attempts == 0 && st.PostponedSince.IsZero() || returns && (d.writes > 0 || s.notes.Has(d.note, st))) {
		return
	}
	s.needNote(d)
	crashes := d.crashes
	s.task(d, func() {
		err := s.tryNote(held, func(ctx context.Context) error { return s.notes.Write(ctx, d.note, st, crashes) })
		s.r.reportInMemory(err)
		if held {
			s.r.client.turn.Give()
		}
	})
}

// needNote gives a message a note if it has none.
func (s *source) needNote(d *delivery) {
	if d.note == nil {
		d.note = s.notes.Create(d.identity())
	}
}

// task runs f in a goroutine. The message does not begin before it returns.
func (s *source) task(d *delivery, f func()) {
	d.writes++
	s.tasks.start(func() {
		f()
		s.lane.Post(func() { d.writes-- })
	})
}

// tryNote makes a change of a note once. If must is set, it repeats that until it succeeds or the client is closed, and
// nothing else begins before: a suspect must not stay charged.
func (s *source) tryNote(must bool, change func(ctx context.Context) error) error {
	pause := newReconnectBackoff()
	for first := true; ; first = false {
		ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
		err := change(ctx)
		cancel()
		if err == nil || !must || s.r.client.consuming.IsClosed() {
			return err
		}
		if first {
			s.r.sub.EmitChange(redeliver.ChangeSuspectUnmarked, "nothing else begins until its note is corrected", err)
		}
		time.Sleep(pause.NextBackOff()) //nolint:forbidigo // no event reports that the broker is reachable again
	}
}

// settleNoted acks a message that has ended, and then removes its note: without a note it would begin with attempt 1, if the process
// died in between. Only if an equal message has come, the note goes first, because the equal message would get it. If the message
// has the turn, it gives that back when the broker has the acks of both: if another message killed the process before, the suspect
// would come back, charged.
func (s *source) settleNoted(d *delivery) {
	noteFirst, sent := s.hasEqual(d), true
	if noteFirst {
		sent = s.notes.Remove(d.note)
	}
	_ = s.acks.flush(1, true, s.ack) // an error means that the channel has ended
	if !noteFirst {
		sent = s.notes.Remove(d.note)
	}
	held := d.hasTurn.Swap(false)
	if sent && !held {
		return
	}
	s.tasks.start(func() {
		if held {
			s.intake.call(func() { _, _ = s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil) }) // see notes.Queue.Confirm
		}
		_ = s.tryNote(held, s.notes.Confirm) // it was recorded
		if held {
			s.r.client.turn.Give()
		}
	})
}

// hasEqual reports whether an unsettled message may be equal to d.
func (s *source) hasEqual(d *delivery) bool {
	for other := range s.acks.unsent {
		if other != d && other.ackState == ackOpen && other.MessageId == d.MessageId && bytes.Equal(other.Body, d.Body) {
			return true
		}
	}
	return false
}

// rememberState stores in memory the state of a message that comes back.
func (s *source) rememberState(d *delivery) {
	st := d.state
	if d.m != nil && d.m.State != nil {
		st = d.m.State
	}
	if s.ordered && st != nil {
		s.r.client.places.Put(placeKey{s.queue, d.identity(), s.notes.Has(d.note, st)}, st)
	}
}

// requestTurn requests the turn of a suspect. While nothing may begin, it would have to give the turn back at once, so it
// requests none. The lane asks again, see hold.check.
func (s *source) requestTurn(d *delivery) {
	if s.r.isShut(s.kind) {
		return
	}
	s.needNote(d)
	s.task(d, func() { s.takeTurn(d) })
}

// takeTurn takes the client's turn and charges the suspect. While that fails, other messages may begin for at least half of the
// time.
func (s *source) takeTurn(d *delivery) {
	ctx, alarm, turn, pause := s.suspectCtx, &s.r.client.publishing.Blocked, s.r.client.turn, newReconnectBackoff()
	for failed := false; ; failed = true {
		select {
		case <-alarm.Opened():
		case <-ctx.Done():
		}
		if !turn.Take(ctx, &s.r.sub.Gate) {
			break
		}
		if alarm.Closed() {
			turn.Give()
			continue
		}
		began := time.Now()
		err := s.charge(d)
		if err == nil {
			d.hasTurn.Store(true)
			if !s.lane.Post(func() { s.onTurn(d) }) {
				s.endTurn(d)
			}
			return
		}
		turn.Give()
		if !failed {
			s.r.sub.EmitChange(redeliver.ChangeSuspectUnmarked, "it waits in its place for its turn", err)
		}
		_ = wait.For(ctx, max(pause.NextBackOff(), time.Since(began))) // the loop notices the end of ctx
	}
}

// charge writes one more crash of the suspect. A try that fails may have written it, so the note is corrected.
func (s *source) charge(d *delivery) error {
	// Not the source's context: a write that it cuts off may have succeeded.
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := s.notes.Open(ctx); err != nil {
		return err
	}
	if err := s.notes.Sync(ctx); err != nil { // this process may have corrected the note after its last channel had ended
		return err
	}
	d.crashes = s.notes.Crashes(d.note)
	err := s.notes.Write(ctx, d.note, nil, d.crashes+1)
	if err != nil {
		_ = s.tryNote(false, func(ctx context.Context) error { return s.notes.Write(ctx, d.note, nil, d.crashes) })
	}
	return err
}

// onTurn runs on the lane's goroutine when the suspect has its turn. If it has ended or expired meanwhile, or nothing may begin, it
// ends the turn so that others need not wait.
func (s *source) onTurn(d *delivery) {
	m := d.m
	if s.stopped || s.ending || d.ackState != ackOpen || m.Step != driver.StepHandle || s.r.isShut(s.kind) {
		s.endTurn(d)
		return
	}
	m.Alone = true
	if d.crashes >= s.r.layout.Policy.MaxCrashes {
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.CrashedError{Crashes: d.crashes}
	}
}

// tasks is a set of goroutines to wait for. It is safe for concurrent use.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when no goroutine runs; nil if nothing waits
}

func (t *tasks) start(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns when no goroutine runs or ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
