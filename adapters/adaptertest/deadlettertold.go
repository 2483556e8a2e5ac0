package adaptertest

import (
	"context"
	"errors"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// telling is a driver whose runner is told to end when it sends.
type telling struct {
	driver.DLQ
	tell context.CancelFunc
	sent int
}

func (q *telling) Begin(ctx context.Context) (driver.Session, error) {
	s, err := q.DLQ.Begin(ctx)
	return &tellingSession{s, q}, err
}

type tellingSession struct {
	driver.Session
	q *telling
}

func (s *tellingSession) Write(ctx context.Context, to driver.Place, msgs []*deadletter.Message) []error {
	s.q.tell()
	s.q.sent += len(msgs)
	return s.Session.Write(ctx, to, msgs)
}

// toldToEnd ends the context of a replay while its first window is on its way, as
// Ctrl-C does, and another runner goes on.
func toldToEnd(d *morgue) {
	msgs, ids := many(30)
	d.die(declined, msgs...)
	d.mend()
	q := d.queue()
	ctx, cancel := d.patience()
	defer cancel()
	told, tell := context.WithCancel(ctx)
	defer tell()
	once := &telling{tell: tell}
	t, err := deadletter.Run(told, deadletter.WithDriver(q, func(d driver.DLQ) driver.DLQ {
		once.DLQ = d
		return once
	}), order())
	if !errors.Is(err, context.Canceled) || t.Status != deadletter.StatusPaused || once.sent == 0 || t.Counts.Replayed != int64(once.sent) {
		d.Fatalf("the replay ended as %s with %+v, and %d were sent: %v", t.Status, t.Counts, once.sent, err)
	}
	if t, err = deadletter.Resume(ctx, q, t.ID, "ben@ops", deadletter.Report{}); err != nil || t.Status != deadletter.StatusDone || t.Counts.Replayed != 30 {
		d.Fatalf("the resumed replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.awaitCommits(ids...)
	// What was sent twice may still be on its way; what is behind it shows that it is not.
	d.put(named("last")...)
	d.awaitCommits("last")
	for _, id := range ids {
		if n := len(d.ran(id)); n != 2 {
			d.Errorf("%s ran %d times, want once and once more", id, n)
		}
	}
	if got := d.lie(q); len(got) > 0 {
		d.Errorf("%q still lie in the DLQ", got)
	}
}
