package console

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// pollTime bounds one look at a DLQ.
	pollTime = 5 * time.Minute
	// pollShare is which part of the time at most goes into reading a DLQ: one in
	// so many.
	pollShare = 10
	// pollLeast is how often a DLQ is read again whose count has not changed, in
	// refreshes, and how often it is asked what waits: that may take a connection.
	pollLeast = 6
)

// Snapshot is what was seen of a DLQ in the background.
type Snapshot struct {
	// Count is how many messages lie there, by the broker's word; Counted is when
	// that was.
	Count   int64
	Exact   bool
	Counted time.Time
	// Summary and Arrivals are what the messages said, Read is when. Zero where
	// they were not read yet, or are not read in the background at all.
	Summary  deadletter.Summary
	Arrivals Arrivals
	Read     time.Time
	// Partial says that the time was too short to read all messages.
	Partial bool
	// Waiting is what waits in the group, where that is told. Mute is why it could not
	// be told the last time; HasWaiting is false then.
	Waiting    []Level
	HasWaiting bool
	Mute       string
	// Oldest is when the oldest was written there, as the broker tells it without a
	// look. Zero where it does not.
	Oldest time.Time
	// Keeps is the retention, where that is told; 0 for none.
	Keeps    time.Duration
	HasKeeps bool
	// Drops is which bound else makes the broker drop a message; empty for none, or
	// where that is not told.
	Drops string
	// Growth is how the count has changed of late, which is told where the messages
	// are not read.
	Growth Growth
	// Holder is who has the DLQ now.
	Holder *deadletter.Holder
	// Trouble is why it could not be seen, and since when. Empty when it could.
	Trouble string
	Since   time.Time
}

// poke has a DLQ looked at soon.
func (q *queue) poke() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// poll looks at a DLQ from time to time until ctx ends. One DLQ is read at a time,
// by whoever has the turn.
func (d *desk) poll(q *queue, turn chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var reading reading
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-timer.C:
		case <-q.kick:
			timer.Stop()
			if !q.asked.Load() { // who asks for causes time and again gets them as often as others are read
				reading.due = time.Time{}
			}
		}
		d.see(q, turn, &reading)
		timer.Reset(d.cfg.Refresh)
	}
}

// reading is when a DLQ is read again.
type reading struct {
	due   time.Time // not before
	count int64     // at the last one
	last  time.Time

	asked time.Time // what waits
	aged  time.Time // how long messages are kept
	grown growing
}

// see looks at a DLQ once.
func (d *desk) see(q *queue, turn chan struct{}, r *reading) {
	ctx, cancel := context.WithTimeout(d.ctx, pollTime)
	defer cancel()
	q.mu.Lock()
	s := q.seen
	q.mu.Unlock()
	err := d.count(ctx, q, &s)
	if err == nil {
		s.Growth = r.grown.see(s.Counted, s.Count)
		d.age(ctx, q, &s, r)
		d.hear(ctx, q, &s, r)
	}
	if err == nil && (q.asked.Load() && !time.Now().Before(r.due) || !q.costly && r.wanted(s.Count, d.cfg.Refresh)) {
		d.saw(q, &s, nil) // reading may take a while
		patience := time.NewTimer(d.cfg.Refresh)
		defer patience.Stop()
		select {
		case turn <- struct{}{}:
			q.asked.Store(false) // for once: it may cost something, and what fails is told
			err = d.read(ctx, q, &s, r)
			<-turn
		case <-patience.C: // the next time, and counted again before
		case <-ctx.Done():
		}
	}
	if d.ctx.Err() == nil {
		d.saw(q, &s, err)
	}
}

// saw notes what was seen, or why nothing was.
func (d *desk) saw(q *queue, s *Snapshot, err error) {
	was := s.Trouble
	s.Trouble = ""
	if err != nil {
		s.Trouble = redeliver.Redact(err.Error())
	}
	if was == "" {
		s.Since = time.Now()
	}
	q.mu.Lock()
	changed := q.seen.Count != s.Count || q.seen.Trouble != s.Trouble || q.seen.Mute != s.Mute || !q.seen.Read.Equal(s.Read)
	q.seen = *s
	q.mu.Unlock()
	if changed {
		d.live.poke()
	}
}

// count asks for what costs nothing.
func (d *desk) count(ctx context.Context, q *queue, s *Snapshot) error {
	n, exact, err := q.q.Count(ctx)
	if err != nil {
		return err
	}
	s.Count, s.Exact, s.Counted = n, exact, time.Now()
	h, held, err := q.q.Holder(ctx)
	if err != nil {
		return err
	}
	s.Holder = nil
	if held {
		s.Holder = &h
	}
	return nil
}

// hear asks what waits, from time to time. It is another question than the DLQ's: where it
// is not answered, the DLQ has no trouble by that.
func (d *desk) hear(ctx context.Context, q *queue, s *Snapshot, r *reading) {
	w, ok := q.q.(Waiter)
	if !ok || time.Since(r.asked) < pollLeast*d.cfg.Refresh {
		return
	}
	if !r.asked.IsZero() { // the first time it would be shown as not told
		d.saw(q, s, nil) // it may take a while
	}
	r.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	levels, err := w.Waiting(ctx)
	if d.ctx.Err() != nil {
		return
	}
	s.Waiting, s.HasWaiting, s.Mute = levels, err == nil, ""
	if err != nil {
		s.Waiting, s.Mute = nil, redeliver.Redact(err.Error())
	}
}

// wanted reports whether it is time to read, and not only to count.
func (r *reading) wanted(count int64, refresh time.Duration) bool {
	now := time.Now()
	if now.Before(r.due) {
		return false
	}
	return r.due.IsZero() || count != r.count || now.Sub(r.last) >= pollLeast*refresh
}

// read goes through all messages.
func (d *desk) read(ctx context.Context, q *queue, s *Snapshot, r *reading) error {
	began := time.Now()
	arrivals := newArrivals(began)
	sum, err := deadletter.Groups(ctx, watching{q.q, arrivals.see}, deadletter.Filter{})
	took := time.Since(began)
	r.due = time.Now().Add(took * pollShare)
	partial := errors.Is(err, context.DeadlineExceeded) && sum.Scanned > 0 && d.ctx.Err() == nil
	if err != nil && !partial {
		return err
	}
	r.count, r.last = s.Count, time.Now()
	s.Summary, s.Arrivals, s.Read, s.Partial = sum, arrivals, time.Now(), partial
	return nil
}

// watching shows what is scanned of a queue.
type watching struct {
	deadletter.Queue
	see func(*deadletter.Message)
}

func (w watching) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := w.Queue.Scan(ctx, from)
	if err != nil {
		return nil, err
	}
	return tap{s, w.see}, nil
}

// tap shows each message that a scan has.
type tap struct {
	deadletter.Scan
	see func(*deadletter.Message)
}

// Next implements [deadletter.Scan].
func (t tap) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	return t.Scan.Next(ctx, func(m *deadletter.Message) bool {
		t.see(m)
		return want == nil || want(m)
	})
}
