package console

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// maxPollTime is the timeout of one refresh of a DLQ.
	maxPollTime = 5 * time.Minute
	// pollShare bounds the time spent on reading a DLQ to one part in pollShare.
	pollShare = 10
	// pollsPerFullRead is the number of refreshes after which an unchanged DLQ is read again. It is also the interval of
	// requests for waiting messages, the pause mark and the retention.
	pollsPerFullRead = 6
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
	// Partial reports whether the time ran out before all messages were read.
	Partial bool
	// Waiting counts the waiting messages of the group, if the broker reports them. WaitingError is the error of the last
	// request; HasWaiting is false then.
	Waiting      []Level
	HasWaiting   bool
	WaitingError string
	// Paused is the mark of a paused group, or nil. PausedError is the error of the last request.
	Paused      *redeliver.PauseMark
	PausedError string
	// Oldest is when the oldest message was written, or zero. It is set if the broker reports it without a read.
	Oldest time.Time
	// Retention is 0 for no limit. HasRetention is set if it is known.
	Retention    time.Duration
	HasRetention bool
	// DropLimit is another limit at which the broker drops messages. It is empty if there is none or it is unknown.
	DropLimit string
	// Growth is the recent change of the count. It is shown if the messages are not read.
	Growth growth
	// Holder is the runner that uses the DLQ now.
	Holder *deadletter.Holder
	// ReadError is the error of the last read, empty for none. Since is when the errors began.
	ReadError string
	Since     time.Time
}

// wake requests a read of the DLQ soon.
func (q *openQueue) wake() {
	select {
	case q.wakeup <- struct{}{}:
	default:
	}
}

// pollQueue refreshes a DLQ regularly until ctx ends. Only the goroutine that has the slot reads messages, so one DLQ is read
// at a time.
func (svc *service) pollQueue(q *openQueue, slot chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var state pollState
	for {
		select {
		case <-svc.ctx.Done():
			return
		case <-timer.C:
		case <-q.wakeup:
			timer.Stop()
			if !q.causesRequested.Load() { // repeated requests for causes are answered only at the normal interval
				state.due = time.Time{}
			}
		}
		svc.refreshQueue(q, slot, &state)
		timer.Reset(svc.cfg.Refresh)
	}
}

// pollState says when a DLQ is read again.
type pollState struct {
	readErr error     // of the last read of the messages, until one succeeds
	due     time.Time // earliest time of the next read
	count   int64     // at the last read
	read    time.Time

	waitingCounted time.Time // last request for waiting messages
	pausedRead     time.Time // last request for the mark of a paused group
	retentionRead  time.Time // last request for the retention
	history        countHistory
}

// refreshQueue updates a DLQ's snapshot.
func (svc *service) refreshQueue(q *openQueue, slot chan struct{}, r *pollState) {
	ctx, cancel := context.WithTimeout(svc.ctx, maxPollTime)
	defer cancel()
	q.mu.Lock()
	s := q.last
	q.mu.Unlock()
	err := svc.countMessages(ctx, q, &s)
	if err == nil {
		s.Growth = r.history.add(s.Counted, s.Count)
		svc.readAge(ctx, q, &s, r)
		svc.countWaiting(ctx, q, &s, r)
		svc.readPaused(ctx, q, &s, r)
	}
	if err == nil && (q.causesRequested.Load() && !time.Now().Before(r.due) || !q.readCosts && r.isDue(s.Count, svc.cfg.Refresh)) {
		svc.publishSnapshot(q, &s) // show the counts first, because the read may take a while
		timer := time.NewTimer(svc.cfg.Refresh)
		defer timer.Stop()
		select {
		case slot <- struct{}{}:
			q.causesRequested.Store(false) // only once: it may cost something, and a failure is shown
			err = svc.readMessages(ctx, q, &s, r)
			<-slot
			if r.readErr = err; q.readCosts {
				r.readErr = nil // it is not tried again without a request
			}
		case <-timer.C: // try at the next refresh, after a new count
		case <-ctx.Done():
		}
	}
	if err == nil {
		err = r.readErr
	}
	if svc.ctx.Err() == nil {
		svc.storeSnapshot(q, &s, err)
	}
}

// storeSnapshot records the new state or the error.
func (svc *service) storeSnapshot(q *openQueue, s *snapshot, err error) {
	was := s.ReadError
	s.ReadError = ""
	if err != nil {
		s.ReadError = redeliver.Redact(err.Error())
	}
	if was == "" {
		s.Since = time.Now()
	}
	svc.publishSnapshot(q, s)
}

func (svc *service) publishSnapshot(q *openQueue, s *snapshot) {
	q.mu.Lock()
	if q.pauseChanged.Load() { // after s was read
		s.Paused = q.last.Paused
	}
	changed := q.last.Count != s.Count || q.last.ReadError != s.ReadError || q.last.WaitingError != s.WaitingError || (q.last.Paused == nil) != (s.Paused == nil) || !q.last.Read.Equal(s.Read)
	q.last = *s
	q.mu.Unlock()
	if changed {
		svc.hub.notify()
	}
}

// countMessages requests the count and the holder. Both requests read no message.
func (svc *service) countMessages(ctx context.Context, q *openQueue, s *snapshot) error {
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

// countWaiting counts the waiting messages periodically. A failure is not an error of the DLQ.
func (svc *service) countWaiting(ctx context.Context, q *openQueue, s *snapshot, r *pollState) {
	w, ok := q.q.(Waiter)
	if !ok || time.Since(r.waitingCounted) < pollsPerFullRead*svc.cfg.Refresh {
		return
	}
	if !r.waitingCounted.IsZero() { // not before the first count: the page would show a failure
		svc.publishSnapshot(q, s) // show the state first, because the count may take a while
	}
	r.waitingCounted = time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	levels, err := w.Waiting(ctx)
	if svc.ctx.Err() != nil {
		return
	}
	s.Waiting, s.HasWaiting, s.WaitingError = levels, err == nil, ""
	if err != nil {
		s.Waiting, s.WaitingError = nil, redeliver.Redact(err.Error())
	}
}

// readPaused reads periodically whether the group is paused. A failure is not an error of the DLQ.
func (svc *service) readPaused(ctx context.Context, q *openQueue, s *snapshot, r *pollState) {
	p, ok := q.q.(Pauser)
	if !ok || !q.pauseChanged.Swap(false) && time.Since(r.pausedRead) < pollsPerFullRead*svc.cfg.Refresh {
		return
	}
	r.pausedRead = time.Now()
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	mark, err := p.Paused(ctx)
	if svc.ctx.Err() != nil {
		return
	}
	s.Paused, s.PausedError = mark, ""
	if err != nil {
		s.PausedError = redeliver.Redact(err.Error())
	}
}

// isDue reports whether it is time to read the messages, and not only to count them.
func (r *pollState) isDue(count int64, refresh time.Duration) bool {
	now := time.Now()
	if now.Before(r.due) {
		return false
	}
	return r.due.IsZero() || count != r.count || now.Sub(r.read) >= pollsPerFullRead*refresh
}

// readMessages reads all messages.
func (svc *service) readMessages(ctx context.Context, q *openQueue, s *snapshot, r *pollState) error {
	began := time.Now()
	arrivals := newArrivals(began)
	sum, err := deadletter.Groups(ctx, observedQueue{q.q, arrivals.add}, deadletter.Filter{})
	took := time.Since(began)
	r.due = time.Now().Add(took * pollShare)
	partial := errors.Is(err, context.DeadlineExceeded) && sum.Scanned > 0 && svc.ctx.Err() == nil
	if err != nil && !partial {
		return err
	}
	r.count, r.read = s.Count, time.Now()
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
