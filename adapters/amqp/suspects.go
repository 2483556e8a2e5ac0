package amqp

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// When a process dies, all its prefetched messages come back. The broker raises the delivery count of all of them,
// after lost connections and shutdowns too. So a high count is no proof. A message that comes back often is rewritten
// to the retry queue, which resets its count before the broker's limit drops it. After several rewrites it is a
// suspect and moves to its own queue. From there the client fetches one at a time, while nothing else of that client
// runs, and starts nothing else until it is settled and the broker has its ack, or its copy could not be written for
// maxWriteTurn. If a suspect comes back without an answer, and this process has not seen its channel end, it was alone
// when the process that had it died. The exception is a suspect without a copy whose process died: it is charged, too.

// suspectPause is the time between two looks at the queue of suspects.
const suspectPause = time.Second

// suspectFeed fetches the messages of a queue of suspects.
type suspectFeed struct{ *source }

// run passes suspects to the lane one at a time, each in its own turn, until the source or its channel ends.
func (s suspectFeed) run() {
	ctx := s.suspectCtx
	for {
		q, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		if err != nil {
			s.endAfterError(err)
			return
		}
		// A get that was denied is repeated even if another process has taken the suspects, so that its end is noticed.
		for more := q.Messages > 0 || s.r.operations.Reported(engine.Operation{Name: s.method(), Place: s.queue}); more; {
			if more, err = s.runOne(ctx); err != nil {
				s.endAfterError(err)
				return
			}
		}
		if wait.For(ctx, suspectPause) != nil {
			return
		}
	}
}

// endAfterError ends the source after an error. If the channel has ended, its own error is the reason, unless err is the
// broker's answer.
func (s suspectFeed) endAfterError(err error) {
	if !s.ch.IsClosed() || link.IsAnswer(err) {
		s.endReason.Store(&err)
	}
	s.finish()
}

// runOne runs one suspect, if there is one, and reports whether there may be more.
func (s suspectFeed) runOne(ctx context.Context) (more bool, err error) {
	t := s.r.client.turn
	if !t.Take(ctx, &s.r.sub.Gate) {
		return false, nil
	}
	defer t.Give()
	got, found, err := s.ch.Get(s.queue, false)
	if err != nil {
		return false, err
	}
	s.r.recordResult(s.method(), s.queue, nil)
	if !found { // another process has it
		return false, nil
	}
	var room slab
	d := room.delivery(&got)
	turn, end := context.WithCancel(context.Background())
	d.endQueueTurn = end
	select {
	case s.in <- d: // even after the end of ctx: requeue rewrites it
	case <-s.laneEnded:
		s.r.client.lostSuspects.Add(d.id())
		return false, nil
	}
	<-turn.Done()
	if !d.ackWritten.Load() || ctx.Err() != nil {
		return false, nil
	}
	// Nothing runs until the broker has the ack: if another message killed the process, the suspect would come back,
	// charged with a crash. Once the broker answers this, it has the ack.
	q, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
	if err != nil { // it may come back when the channel ends: no crash
		s.r.client.lostSuspects.Add(d.id())
		return false, err
	}
	s.accepted.Store(true)
	s.r.client.lostSuspects.Forget(d.id())
	return q.Messages > 0, nil
}

// endTurn ends the turn of a suspect, if the message has one. It is safe for concurrent and repeated use.
func (s *source) endTurn(d *delivery) {
	switch {
	case d.endQueueTurn != nil:
		d.endQueueTurn()
	case d.hasTurn.Load():
		s.keepNote(d, nil, false)
	}
}

// requeue rewrites suspects to their queue if they did not end in the drain timeout. Closing the
// channel instead would count as a crash. Their handlers and writes may still run.
func (s suspectFeed) requeue(ctx context.Context) {
	for d := range s.acks.unsent {
		if d.ackState != ackOpen {
			continue
		}
		again := &delivery{Record: d.Record, state: d.state, arrived: d.arrived}
		if s.rewrite(ctx, driver.PlaceSuspects, &driver.Message[*delivery]{Record: again, State: d.m.State}) {
			s.acks.settle(d)
		}
	}
}
