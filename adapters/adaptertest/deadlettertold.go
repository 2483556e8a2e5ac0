package adaptertest

import (
	"context"
	"errors"

	"github.com/redeliver/redeliver/deadletter"
)

// telling is a queue whose runner is told to end when it sends.
type telling struct {
	deadletter.Queue
	tell context.CancelFunc
	sent int
}

func (q *telling) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	c, err := q.Queue.Claim(ctx, h)
	return &tellingClaim{Claim: c, q: q}, err
}

type tellingClaim struct {
	deadletter.Claim
	q *telling
}

func (c *tellingClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	c.q.tell()
	c.q.sent += len(msgs)
	return c.Claim.Send(ctx, msgs)
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
	once := &telling{Queue: q, tell: tell}
	t, err := deadletter.Run(told, once, order())
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
