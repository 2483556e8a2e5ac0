package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/contextkey"
)

// Extend implements redeliver.Extend. For an attempt in a batch it extends the batch.
func (d *Delivery) Extend(by time.Duration) error {
	if d.batched != nil && d.batched.batch != nil {
		return d.batched.batch.Extend(by)
	}
	w := d.sub.watch
	switch {
	case !d.begun:
		return fmt.Errorf("%w: no attempt runs", redeliver.ErrNotExtended)
	case w == nil:
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !d.runsLocked() || d.began == waitsForBatch {
		return errAttemptOver
	}
	until, err := d.sub.extended(d.began, by)
	w.extendLocked(d, until)
	return err
}

var errAttemptOver = fmt.Errorf("%w: it is over", redeliver.ErrNotExtended)

// extended returns the new end of an attempt that started at began and asks for the duration by, from now on. If
// MaxTimeout allows less, until is the latest end that it allows, and err says so.
func (s *Subscription) extended(began, by time.Duration) (until time.Duration, err error) {
	now := time.Since(epoch)
	latest := began + s.Policy.MaxTimeout
	if by > latest-now {
		return latest, fmt.Errorf("%w by %s: MaxTimeout, %s, leaves %s", redeliver.ErrNotExtended, by, s.Policy.MaxTimeout, max(0, latest-now).Round(time.Millisecond))
	}
	return now + by, nil
}

// extendLocked moves the end of an attempt, unless it already ends later.
func (w *watch) extendLocked(d *Delivery, until time.Duration) {
	if until > d.ends {
		w.unlinkLocked(d)
		w.insertLocked(d, until)
	}
}

// runsLocked reports whether the handler has neither answered nor timed out. It needs the watch's lock.
func (d *Delivery) runsLocked() bool { return !d.answered && !d.timedOut && d.late == nil }

// Extend implements redeliver.Extend for the whole batch.
func (b *Batch) Extend(by time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return errAttemptOver
	case b.expiry == nil: // no Timeout
		return nil
	case time.Since(epoch) >= b.until:
		return errAttemptOver
	}
	until, err := b.queue.sub.extended(b.began, by)
	if until <= b.until {
		return err
	}
	b.until = until
	left := until - time.Since(epoch)
	b.expiry.Reset(left)
	b.stuck.Reset(left + StuckAfter)
	w := b.queue.sub.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range b.messages {
		if !m.answered && m.d != nil && m.d.runsLocked() {
			w.extendLocked(m.d, until)
		}
	}
	return err
}

// Value implements [context.Context].
func (b *Batch) Value(key any) any {
	if _, ok := key.(contextkey.State); ok {
		return b
	}
	return b.LazyContext.Value(key)
}

// Deadline implements [context.Context].
func (b *Batch) Deadline() (time.Time, bool) {
	b.mu.Lock()
	end := b.until
	b.mu.Unlock()
	return earliest(&b.LazyContext, end)
}

// Deadline implements [context.Context].
func (d *Delivery) Deadline() (time.Time, bool) {
	w := d.sub.watch
	if w == nil {
		return d.LazyContext.Deadline()
	}
	w.mu.Lock()
	end := d.ends
	w.mu.Unlock()
	return earliest(&d.LazyContext, end)
}

// earliest returns the deadline of a context whose owner ends it at the time end, counted from epoch; 0 means never.
func earliest(ctx context.Context, end time.Duration) (time.Time, bool) {
	at, ok := ctx.Deadline()
	if end == 0 {
		return at, ok
	}
	now := time.Now()
	if own := now.Add(end - now.Sub(epoch)); !ok || own.Before(at) {
		return own, true
	}
	return at, true
}
