package pubsub

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// wait holds the message that heads a delay topic until its time there is over,
// and writes it to where it goes then. It tells whether it is settled. Those behind
// it wait for it, and lose nothing: what is written to one delay topic has its time
// in the order of the writes, but for a rest that no level fits.
func (l *lane) wait(ctx context.Context, raw *message.Message) bool {
	w := l.waiting(raw)
	e := l.r.newEntry(raw, w.rec, &w.state)
	defer e.end()
	// An older policy has put it here, or nobody of ours: it moves to its own place
	// and holds up nobody.
	if stays := time.Until(w.until); stays <= l.r.layout.stay(l.nth)+slack && !e.sleep(ctx, w.until) {
		return false
	}
	var where string
	ok := e.until(func() (err error) {
		where, err = l.r.sub.Persist(e.d, &w.state, func(ctx context.Context) (string, error) { return l.pass(ctx, w) })
		return err
	})
	switch {
	case !ok:
	case where == l.r.layout.topic:
		l.r.sub.Tell(redeliver.Published{State: w.state, Topic: where})
	case where != l.r.layout.back:
		l.r.sub.Tell(redeliver.Hopped{State: w.state, From: l.topic, To: where})
	}
	return ok
}

// waiting is a message that waits.
type waiting struct {
	rec   *record
	ours  *carried // nil: it goes back as it is
	state redeliver.State
	until time.Time
}

// waiting reads a message. One whose state cannot be right goes to where it comes
// back at once: there it is reported.
func (l *lane) waiting(raw *message.Message) *waiting {
	lay := l.r.layout
	rec, c := newRecord(raw, true, l.r.client.cfg.Decode)
	if c != nil {
		st, found := redeliver.ParseHeaders(lay.group, c.headers)
		if len(found) == 0 && !st.Due.IsZero() && st.Due.Before(time.Now().Add(redeliver.MaxWait)) {
			if st.ID == "" {
				st.ID = rec.id()
			}
			st.Group, st.Origin, st.Policy = lay.group, lay.topic, lay.print
			return &waiting{rec: rec, ours: c, state: st, until: c.until}
		}
	}
	rec, _ = newRecord(raw, false, nil) // with whatever stands there
	return &waiting{rec: rec, state: redeliver.State{ID: rec.id(), Group: lay.group, Origin: lay.topic}}
}

// pass writes it to where it goes now: to a shorter level, back to the group, or, a
// delayed publish that is due, to its topic.
func (l *lane) pass(ctx context.Context, w *waiting) (string, error) {
	if back := l.r.layout.back; w.ours == nil {
		return back, l.r.fwd.write(ctx, back, w.rec, nil)
	}
	return l.r.fwd.wait(ctx, w.rec, &w.state, w.ours.publish)
}
