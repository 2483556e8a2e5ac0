package sqs

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/internal/driver"
)

// A message that kills its process comes back, and with it everything that the
// process had in hand. SQS's count of receives rises for all of them, and for
// lost connections and shutdowns too, so it charges nobody: it marks suspects. A
// suspect is moved to a queue of its own. From there one is received at a time,
// when nothing else of that client runs, and nothing else begins until it is
// settled. One that comes back from there without an answer was alone when its
// process died.

const (
	// How often the queue of suspects is looked at: each look is a request. The pause begins with minSuspectPause where there
	// was a suspect, and doubles with each look that finds none.
	minSuspectPause = time.Second
	maxSuspectPause = time.Minute
	// A suspect that another process has, or whose group it has, looks as if it were there. To find that out takes a turn,
	// in which nothing else runs.
	minInconclusivePause = 20 * time.Second
	maxInconclusivePause = 5 * time.Minute
)

// runSuspects gives the lane one suspect at a time, each in a turn of its own, until ctx
// ends.
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

// hasMessages reports whether there are messages in the queue, as far as SQS knows.
func (s *source) hasMessages(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.client.cfg.SendTimeout)
	defer cancel()
	name := types.QueueAttributeNameApproximateNumberOfMessages
	out, err := s.client.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &s.queue.url, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		if isMissingQueue(err) {
			_ = s.client.provision(ctx, s.layout) // who writes to it says why
		}
		return errorCode(err) == "AccessDenied" // then only a receive tells
	}
	n, err := strconv.Atoi(out.Attributes[string(name)])
	return err != nil || n > 0
}

// runSuspect runs one suspect, and returns whether there was one and another may follow, and whether the turn was taken in vain.
func (s *source) runSuspect(ctx context.Context) (more, inconclusive bool) {
	t := s.client.turn
	if !t.Take(ctx, &s.sub.Gate) {
		return false, false
	}
	msgs, err := s.receive(1, time.Second)
	if err != nil {
		s.lostAnswers.Add(1) // an answer that got lost counts as a receive, and was no crash
	}
	all := s.registerMessages(msgs, time.Now(), s.client.cfg.VisibilityTimeout)
	if len(all) == 0 { // another process has it
		t.Give()
		return false, err == nil
	}
	d := all[0]
	s.passToLane(all) // also when ctx has ended
	select {
	case <-d.closed:
	case <-d.copying: // its handler has answered, and its copy may wait for the end of an outage
	case <-ctx.Done(): // nothing more comes; the turn ends with the message
		go func() {
			<-d.closed
			t.Give()
		}()
		return false, false
	}
	defer t.Give()
	// While it is settled and still there, nothing else may kill the process: it
	// would come back, and be charged.
	timer := time.NewTimer(2 * s.client.cfg.SendTimeout)
	defer timer.Stop()
	select {
	case <-d.removed:
	case <-timer.C: // it cannot be written or deleted; other queues of the client must not wait for that
	case <-ctx.Done():
	}
	return ctx.Err() == nil, false
}

// requeueSuspect moves a suspect that has not answered within the drain timeout, or has not begun, back to its queue, uncharged: to
// leave it would count as a crash. Its handler may still run, and so may what it has begun to write.
func (s *source) requeueSuspect(m *driver.Message[*delivery]) {
	d := m.Record
	s.mu.Lock()
	if d.gone || d.settled {
		s.mu.Unlock()
		return
	}
	s.closeLocked(d)
	d.settled = true
	s.settled++ // Flush waits for it
	s.mu.Unlock()
	st := s.stateOf(d)
	if m.State != nil {
		st = *m.State
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.client.cfg.SendTimeout)
	q, o := s.r.store.suspectCopy(d, &st)
	s.r.store.postCreating(ctx, q, o, func(err error) {
		cancel()
		if err == nil {
			s.deleter.add(d)
		} else {
			s.deleted(d) // it comes back, charged
		}
	})
}
