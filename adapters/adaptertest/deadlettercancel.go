package adaptertest

import (
	"context"
	"errors"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// cancellingDLQ is a driver that cancels its runner's context at the first write.
type cancellingDLQ struct {
	driver.DLQ
	cancel context.CancelFunc
	sent   int
}

func (q *cancellingDLQ) Begin(ctx context.Context) (driver.Session, error) {
	s, err := q.DLQ.Begin(ctx)
	return &cancellingSession{s, q}, err
}

type cancellingSession struct {
	driver.Session
	q *cancellingDLQ
}

func (s *cancellingSession) Write(ctx context.Context, to driver.Place, msgs []*deadletter.Message) []error {
	s.q.cancel()
	s.q.sent += len(msgs)
	return s.Session.Write(ctx, to, msgs)
}

// cancelledReplay cancels the context of a replay while its first window is being sent, as Ctrl-C does, and another
// runner resumes it.
func cancelledReplay(d *dlqFixture) {
	msgs, ids := numberedMessages(30)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	q := d.queue()
	ctx := d.withTimeout()
	replayCtx, cancelReplay := context.WithCancel(ctx)
	defer cancelReplay()
	once := &cancellingDLQ{cancel: cancelReplay}
	t, err := deadletter.Run(replayCtx, deadletter.WithDriver(q, func(d driver.DLQ) driver.DLQ {
		once.DLQ = d
		return once
	}), newReplay())
	if !errors.Is(err, context.Canceled) || t.Status != deadletter.StatusPaused || once.sent == 0 || t.Counts.Replayed != int64(once.sent) {
		d.Fatalf("the replay ended as %s with %+v, and %d were sent: %v", t.Status, t.Counts, once.sent, err)
	}
	if t, err = deadletter.Resume(ctx, q, t.ID, "ben@ops", deadletter.Report{}); err != nil || t.Status != deadletter.StatusDone || t.Counts.Replayed != 30 {
		d.Fatalf("the resumed replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.replayedOnce(q, 0, ids...)
}
