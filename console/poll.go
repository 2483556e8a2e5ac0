package console

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// pollTime is the timeout of one read of a DLQ.
	pollTime = 5 * time.Minute
	// pollShare bounds the time spent on reading a DLQ to one part in pollShare.
	pollShare = 10
	// minPoll is the number of refreshes after which an unchanged DLQ is read again. It is also the interval of
	// requests for waiting messages, which may need a new connection.
	minPoll = 6
)

// snapshot is the state of a DLQ at a background read.
type snapshot struct {
	// Count is the number of messages that the broker reported at Counted.
	Count   int64
	Exact   bool
	Counted time.Time
	// Summary and Arrivals were computed from the messages at Read. They are zero if the DLQ has not been read yet, or
	// is not read in the background.
	Summary  deadletter.Summary
	Arrivals arrivals
	Read     time.Time
	// Partial reports whether there was not enough time to read all messages.
	Partial bool
	// Waiting counts the waiting messages of the group, if the broker reports them. Mute is the error of the last
	// request; HasWaiting is false then.
	Waiting    []Level
	HasWaiting bool
	Mute       string
	// Oldest is when the oldest message was written, or zero. It is set if the broker reports it without a read.
	Oldest time.Time
	// Keeps is the retention if the broker reports it, 0 for none.
	Keeps    time.Duration
	HasKeeps bool
	// Drops is another limit at which the broker drops messages. It is empty if there is none or it is unknown.
	Drops string
	// Growth is the recent change of the count. It is shown if the messages are not read.
	Growth growth
	// Holder is the runner that uses the DLQ now.
	Holder *deadletter.Holder
	// Trouble is the error of the last read, empty for none. Since is when the errors began.
	Trouble string
	Since   time.Time
}

// poke requests a read of the DLQ soon.
func (q *openQueue) poke() {
	select {
	case q.kick <- struct{}{}:
	default:
	}
}

// poll reads a DLQ periodically until ctx ends. Only the goroutine that holds turn reads, so one DLQ is read at a time.
func (d *desk) poll(q *openQueue, turn chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var reading pollState
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-timer.C:
		case <-q.kick:
			timer.Stop()
			if !q.asked.Load() { // repeated requests for causes are answered only at the normal interval
				reading.due = time.Time{}
			}
		}
		d.see(q, turn, &reading)
		timer.Reset(d.cfg.Refresh)
	}
}

// pollState holds when a DLQ is to be read again.
type pollState struct {
	due   time.Time // earliest time of the next read
	count int64     // at the last read
	last  time.Time

	asked time.Time // last request for waiting messages
	aged  time.Time // last request for the retention
	grown countHistory
}

// see reads a DLQ once.
func (d *desk) see(q *openQueue, turn chan struct{}, r *pollState) {
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
		d.saw(q, &s, nil) // show the counts first, because the read may take a while
		timer := time.NewTimer(d.cfg.Refresh)
		defer timer.Stop()
		select {
		case turn <- struct{}{}:
			q.asked.Store(false) // only once: it may cost something, and a failure is shown
			err = d.read(ctx, q, &s, r)
			<-turn
		case <-timer.C: // try at the next refresh, after a new count
		case <-ctx.Done():
		}
	}
	if d.ctx.Err() == nil {
		d.saw(q, &s, err)
	}
}

// saw records the new state or the error.
func (d *desk) saw(q *openQueue, s *snapshot, err error) {
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

// count requests the values that cost nothing.
func (d *desk) count(ctx context.Context, q *openQueue, s *snapshot) error {
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

// hear counts the waiting messages periodically. A failure is not an error of the DLQ.
func (d *desk) hear(ctx context.Context, q *openQueue, s *snapshot, r *pollState) {
	w, ok := q.q.(Waiter)
	if !ok || time.Since(r.asked) < minPoll*d.cfg.Refresh {
		return
	}
	if !r.asked.IsZero() { // at the first time, waiting messages would be shown as unavailable
		d.saw(q, s, nil) // show the state first, because the count may take a while
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

// wanted reports whether it is time to read the messages, and not only to count them.
func (r *pollState) wanted(count int64, refresh time.Duration) bool {
	now := time.Now()
	if now.Before(r.due) {
		return false
	}
	return r.due.IsZero() || count != r.count || now.Sub(r.last) >= minPoll*refresh
}

// read reads all messages.
func (d *desk) read(ctx context.Context, q *openQueue, s *snapshot, r *pollState) error {
	began := time.Now()
	arrivals := newArrivals(began)
	sum, err := deadletter.Groups(ctx, observedQueue{q.q, arrivals.see}, deadletter.Filter{})
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

// observedQueue calls see with each message that a scan of the queue reads.
type observedQueue struct {
	deadletter.Queue
	see func(*deadletter.Message)
}

func (w observedQueue) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := w.Queue.Scan(ctx, from)
	if err != nil {
		return nil, err
	}
	return observedScan{s, w.see}, nil
}

// observedScan calls see with each message of a scan.
type observedScan struct {
	deadletter.Scan
	see func(*deadletter.Message)
}

// Next implements [deadletter.Scan].
func (t observedScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	return t.Scan.Next(ctx, func(m *deadletter.Message) bool {
		t.see(m)
		return want == nil || want(m)
	})
}
