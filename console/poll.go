package console

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// pollTime bounds one read of a DLQ.
	pollTime = 5 * time.Minute
	// pollShare is which part of the time at most goes into reading a DLQ: one in
	// so many.
	pollShare = 10
	// minPoll is how often a DLQ is read again whose count has not changed, in
	// refreshes, and how often it is asked what waits: that may take a connection.
	minPoll = 6
)

// Snapshot is the state of a DLQ that was read in the background.
type Snapshot struct {
	// Count is how many messages lie there, by the broker's word; Counted is when
	// that was.
	Count   int64
	Exact   bool
	Counted time.Time
	// Summary and Arrivals are from the messages, which were read at Read. Zero if they were not read yet, or
	// are not read in the background at all.
	Summary  deadletter.Summary
	Arrivals Arrivals
	Read     time.Time
	// Partial says that there was not enough time to read all messages.
	Partial bool
	// Waiting counts the waiting messages of the group, where the broker reports them. Mute is the error of the
	// last try; HasWaiting is false then.
	Waiting    []Level
	HasWaiting bool
	Mute       string
	// Oldest is when the oldest message was written, if the broker reports it without a read, or zero.
	Oldest time.Time
	// Keeps is the retention, where the broker reports it; 0 for none.
	Keeps    time.Duration
	HasKeeps bool
	// Drops is another bound at which the broker drops messages; empty for none, or if it is unknown.
	Drops string
	// Growth is how the count has changed recently, which is reported where the messages are not read.
	Growth Growth
	// Holder is the runner that has the DLQ now.
	Holder *deadletter.Holder
	// Trouble is why it could not be seen, and since when. Empty when it could.
	Trouble string
	Since   time.Time
}

// poke has a DLQ read soon.
func (q *openQueue) poke() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// poll reads a DLQ from time to time until ctx ends. One DLQ is read at a time, by the goroutine that has the
// turn.
func (d *desk) poll(q *openQueue, turn chan struct{}) {
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

// see reads a DLQ once.
func (d *desk) see(q *openQueue, turn chan struct{}, r *reading) {
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
		timer := time.NewTimer(d.cfg.Refresh)
		defer timer.Stop()
		select {
		case turn <- struct{}{}:
			q.asked.Store(false) // only once: it may cost something, and a failure is shown
			err = d.read(ctx, q, &s, r)
			<-turn
		case <-timer.C: // the next time, and counted again before
		case <-ctx.Done():
		}
	}
	if d.ctx.Err() == nil {
		d.saw(q, &s, err)
	}
}

// saw records the new state, or the error.
func (d *desk) saw(q *openQueue, s *Snapshot, err error) {
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

// count asks for the values that cost nothing.
func (d *desk) count(ctx context.Context, q *openQueue, s *Snapshot) error {
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

// hear counts the waiting messages from time to time. An error there is no error of the DLQ.
func (d *desk) hear(ctx context.Context, q *openQueue, s *Snapshot, r *reading) {
	w, ok := q.q.(Waiter)
	if !ok || time.Since(r.asked) < minPoll*d.cfg.Refresh {
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
	return r.due.IsZero() || count != r.count || now.Sub(r.last) >= minPoll*refresh
}

// read goes through all messages.
func (d *desk) read(ctx context.Context, q *openQueue, s *Snapshot, r *reading) error {
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
