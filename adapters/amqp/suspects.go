package amqp

import (
	"context"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// A message that kills its process comes back, and with it everything that the process had prefetched. The broker's count of
// deliveries rises for all of them, and for lost connections and shutdowns too, so it charges nobody. What came back often is
// written anew to the way back, where it is counted from the beginning: the broker drops what reaches its limit. When that has
// happened some times the message is a suspect and is moved to a queue of its own. From there one is fetched at a time, when
// nothing else of that client runs, and nothing else begins until it is settled and the broker has its ack. One that comes back
// from there without an answer, and whose channel this process has not seen ending, was alone when its process died.

// suspectPause is how often the queue of suspects is looked at.
const suspectPause = time.Second

// runSuspects gives the lane one suspect at a time, each in a turn of its own, until ctx ends or the channel is gone.
func (s *source) runSuspects(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.lost:
		case <-s.over:
		case <-ctx.Done():
		}
		cancel()
	}()
	look := time.NewTicker(suspectPause)
	defer look.Stop()
	for {
		q, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		if err != nil {
			s.stopSuspects(err)
			return
		}
		for more := q.Messages > 0; more; {
			if more, err = s.runSuspect(ctx); err != nil {
				s.stopSuspects(err)
				return
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// stopSuspects ends the source whose queue does not answer. Where that has closed the channel, the channel says why.
func (s *source) stopSuspects(err error) {
	if !s.ch.IsClosed() {
		s.fail(err)
	}
	s.finish()
}

// runSuspect runs one suspect, if there is one, and says whether there may be more.
func (s *source) runSuspect(ctx context.Context) (more bool, err error) {
	t := s.r.client.turn
	if !t.Take(ctx, &s.r.sub.Gate) {
		return false, nil
	}
	defer t.Give()
	got, found, err := s.ch.Get(s.queue, false)
	if err != nil || !found { // another process has it
		return false, err
	}
	var room slab
	d := room.delivery(&got)
	d.over = &turnEnd{ended: make(chan struct{})}
	select {
	case s.in <- d: // also when ctx has ended: see acquit
	case <-s.over:
		s.r.client.outlived.add(d.id())
		return false, nil
	}
	<-d.over.ended
	if !d.proven || ctx.Err() != nil {
		return false, nil
	}
	// Before the broker has the ack nothing else may run: if it killed the process, the suspect would come back and be charged.
	// The broker answers on a channel in the order in which it was asked.
	q, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
	if err != nil { // it may come back for that, and then it has killed nobody
		s.r.client.outlived.add(d.id())
		return false, err
	}
	s.r.client.outlived.settled(d.id())
	return q.Messages > 0, nil
}

// turnEnd is the end of a suspect's turn.
type turnEnd struct {
	once  sync.Once
	ended chan struct{}
}

// endTurn ends the turn of a suspect, if the message is one and has it. Any goroutine may call it, and more than once.
func (s *source) endTurn(d *delivery, settled bool) {
	switch {
	case d.over != nil:
		d.over.once.Do(func() { close(d.over.ended) })
	case d.inTurn != nil:
		d.inTurn.end(settled)
	}
}

// chargeCrashes decides about a suspect that comes from its queue again.
func (s *source) chargeCrashes(d *delivery, m *driver.Message[*delivery], count int) {
	times := max(0, count-s.r.client.outlived.of(d.id()))
	if times >= s.r.layout.policy.MaxCrashes {
		m.Step, m.Err = driver.Bury, &redeliver.CrashedError{Times: times}
	}
}

// acquit moves the suspects that have not answered within the drain timeout, or have not begun, back to their queue, uncharged:
// closing the channel would count as a crash. Their handlers may still run, and so may what they have begun to write.
func (s *source) acquit(ctx context.Context) {
	for d := range s.acks.untold {
		if d.what != open {
			continue
		}
		var st redeliver.State
		codec{s.r.layout}.State(d.m, &st)
		if d.m.State != nil {
			st = *d.m.State
		}
		again := &delivery{record: d.record, state: d.state, arrived: d.arrived}
		w := write{store: s.r.store, ctx: ctx, d: again}
		if unsure, err := w.sender.send(ctx, "", w.layout.suspects(), w.suspectCopy(&st)); err == nil && unsure == nil {
			s.acks.settle(d)
		}
	}
}

// suspectCopy is what acquit writes.
func (w *write) suspectCopy(st *redeliver.State) amqp091.Publishing {
	rec := w.d.record
	p, err := rec.waitingCopy(st, time.Time{}, w.sender.link.frameMax(), countRoom)
	if err != nil { // it was written there before
		p = rec.publishing(st)
		sign(rec.keys, &p)
	}
	return p
}

// outlived counts, by id, how often this process has seen the channels end that had a suspect: the broker counts that as it
// counts a crash. It is of those that are not settled. Safe for concurrent use.
type outlived struct {
	mu     sync.Mutex
	counts map[string]int
}

// maxOutlived is how many suspects are remembered, hardly ever more than a few.
const maxOutlived = 10_000

func (o *outlived) add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.counts == nil {
		o.counts = make(map[string]int)
	}
	if _, known := o.counts[id]; known || len(o.counts) < maxOutlived {
		o.counts[id]++
	}
}

func (o *outlived) of(id string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts[id]
}

func (o *outlived) settled(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.counts, id)
}
