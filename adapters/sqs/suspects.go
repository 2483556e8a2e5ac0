package sqs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/deadletter"
)

// When a process dies, all its messages come back. SQS's count of receives rises for all of them, after lost
// connections and shutdowns too. So a high count only makes a message a suspect, which moves to the queue of suspects.
// The client takes one suspect at a time, while it runs nothing else, and starts nothing else until the suspect is
// settled. A suspect that comes back without an answer was alone when its process died.

const (
	// Pauses between looks at the queue of suspects; each look is a request. The pause starts at minSuspectPause
	// after a suspect, and doubles while looks find none.
	minSuspectPause = time.Second
	maxSuspectPause = 30 * time.Second
	// A turn is inconclusive if SQS counts a suspect and delivers none, because another process has it or one of its
	// group. Nothing else runs in a turn, so the pauses after it are longer.
	minInconclusivePause = 20 * time.Second
	maxInconclusivePause = 5 * time.Minute
)

// runSuspects passes suspects to the lane one at a time, each in its own turn, until ctx ends.
func (s *source) runSuspects(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	pause := minSuspectPause / 2
	for {
		woken := false
		select {
		case <-timer.C:
		case <-s.r.suspectAdded:
			woken = true
		case <-ctx.Done():
			return
		}
		found, inconclusive := false, false
		if woken || s.hasMessages(ctx) {
			more := true
			for more {
				more, inconclusive = s.runSuspect(ctx)
				found = found || more
			}
		}
		switch {
		case found:
			pause = minSuspectPause
		case inconclusive:
			pause = min(max(2*pause, minInconclusivePause), maxInconclusivePause)
		default:
			pause = min(2*pause, max(pause, maxSuspectPause))
		}
		timer.Reset(pause)
	}
}

// hasMessages reports whether SQS counts messages in the queue.
func (s *source) hasMessages(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.client.cfg.SendTimeout)
	defer cancel()
	counts, err := s.queue.Count(ctx)
	if api.IsMissingQueue(err) {
		_ = s.client.provision(ctx, s.layout) // the writer reports the error
		return false
	}
	// Without the right to count, or on a server that does not count, only a receive shows whether there are messages.
	return counts.Visible > 0 || api.IsAccessDenied(err) || errors.Is(err, deadletter.ErrNotReported)
}

// runSuspect receives a suspect and runs it. more reports whether it ran one and may run another. inconclusive reports
// whether SQS delivered none.
func (s *source) runSuspect(ctx context.Context) (more, inconclusive bool) {
	t := s.client.turn
	if !t.Take(ctx, &s.sub.Gate) {
		return false, false
	}
	msgs, err := s.receive(1, time.Second)
	if err != nil && !api.IsRefusal(err) {
		s.lostReceives.add(time.Now())
	}
	all := s.registerMessages(msgs, time.Now(), s.client.cfg.VisibilityTimeout)
	if len(all) == 0 { // another process has it
		t.Give()
		return false, err == nil
	}
	d := all[0]
	s.passToLane(all) // even when ctx has ended
	select {
	case <-d.answered:
	case <-ctx.Done(): // nothing follows; the turn ends with the message
		go func() {
			<-d.removed
			t.Give()
		}()
		return false, false
	}
	defer t.Give()
	// Until the suspect is removed nothing else may run: if that killed the process, the suspect would come back,
	// charged with a crash.
	timer := time.NewTimer(2 * s.client.cfg.SendTimeout)
	defer timer.Stop()
	select {
	case <-d.removed:
	case <-timer.C: // it cannot be written or deleted; other queues of the client must not wait for that
	case <-ctx.Done():
	}
	return ctx.Err() == nil, false
}

// requeueSuspect writes an unanswered suspect to its queue again, whether it has begun or not. Otherwise its next
// receive would count as a crash. Its handler and its writes may still run.
func (s *source) requeueSuspect(d *delivery) {
	s.mu.Lock()
	if d.gone || d.settled {
		s.mu.Unlock()
		return
	}
	s.removeUnsettledLocked(d)
	d.settled = true
	s.settled++ // Flush waits for it
	m := d.m
	s.mu.Unlock()
	st := s.stateOf(d)
	if m != nil && m.State != nil {
		st = *m.State
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	q, o := s.r.store.suspectCopy(d, &st)
	s.r.store.postCreating(ctx, q, o, func(err error) {
		cancel()
		if err == nil {
			s.deleter.add(d)
		} else {
			s.deleted(d) // it comes back and counts as a crash
		}
	})
}

// lostReceives are the times of failed receives of suspects. SQS may have counted each as a receive of a message that was
// in the queue by then, although it was no sign of a crash. The zero value has none. It is safe for concurrent use.
type lostReceives struct {
	mu  sync.Mutex
	all []time.Time
}

const maxLostReceives = 100

func (r *lostReceives) add(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == maxLostReceives {
		r.all = append(r.all[:0], r.all[1:]...)
	}
	r.all = append(r.all, at)
}

// since returns how many have failed since a message was sent.
func (r *lostReceives) since(sent time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.all {
		if !at.Before(sent) {
			n++
		}
	}
	return n
}
