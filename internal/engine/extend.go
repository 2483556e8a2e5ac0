package engine

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/contextkey"
)

// extension is the new end of an attempt that was extended. Such an attempt is not in the watch's list, which is in the order of
// deadlines. The watch's lock guards the extension.
type extension struct {
	until time.Duration // counted from epoch
	timer *time.Timer   // nil: the batch has one
}

func (e *extension) stop() {
	if e != nil && e.timer != nil {
		e.timer.Stop()
	}
}

// Extend implements redeliver.Extend. For an attempt in a batch it extends the batch.
func (d *Delivery) Extend(by time.Duration) error {
	if t, ok := d.task.(interface{ Batch() *Batch }); ok {
		if b := t.Batch(); b != nil {
			return b.Extend(by)
		}
	}
	if d.task == nil {
		return fmt.Errorf("%w: no attempt runs", redeliver.ErrNotExtended)
	}
	w := d.w
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !d.runsLocked() || d.at == waitsForBatch {
		return errOver
	}
	until, err := d.sub.extended(d.at, by)
	if e := w.extendLocked(d, until); e != nil {
		e.timer = time.AfterFunc(until-time.Since(epoch), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if d.extension == e && d.runsLocked() {
				w.endLocked(d)
			}
		})
	}
	return err
}

var errOver = fmt.Errorf("%w: it is over", redeliver.ErrNotExtended)

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

// extendLocked moves the end of an attempt to until. It returns nil if the attempt already ends later.
func (w *watch) extendLocked(d *Delivery, until time.Duration) *extension {
	if until <= d.at+d.timeoutLocked() {
		return nil
	}
	w.unlinkLocked(d)
	d.extension.stop()
	d.extension = &extension{until: until}
	return d.extension
}

// runsLocked reports whether the handler has neither answered nor timed out. It needs the watch's lock.
func (d *Delivery) runsLocked() bool { return !d.answered && !d.warned && d.over == nil }

// wholeTimeout returns the time that the whole attempt may take, with its extensions. d.w must not be nil.
func (d *Delivery) wholeTimeout() time.Duration {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	return d.timeoutLocked()
}

// timeoutLocked is wholeTimeout with the watch's lock.
func (d *Delivery) timeoutLocked() time.Duration {
	if d.extension != nil {
		return d.extension.until - d.at
	}
	return d.w.timeout
}

// Extend implements redeliver.Extend for the whole batch.
func (b *Batch) Extend(by time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return errOver
	case b.expiry == nil: // no Timeout
		return nil
	case time.Since(epoch) >= b.until:
		return errOver
	}
	until, err := b.queue.sub.extended(b.began, by)
	if until <= b.until {
		return err
	}
	b.until, b.extended = until, true
	left := until - time.Since(epoch)
	b.expiry.Reset(left)
	b.stuck.Reset(left + StuckAfter)
	for _, m := range b.messages {
		if d := m.d; !m.settled && d != nil && d.w != nil {
			d.w.mu.Lock()
			if d.runsLocked() {
				d.w.extendLocked(d, until)
			}
			d.w.mu.Unlock()
		}
	}
	return err
}

// Value implements [context.Context].
func (b *Batch) Value(key any) any {
	if _, ok := key.(contextkey.State); ok {
		return b
	}
	return b.Lazy.Value(key)
}

// Deadline implements [context.Context].
func (b *Batch) Deadline() (time.Time, bool) {
	outer, ok := b.Lazy.Deadline()
	b.mu.Lock()
	until := b.until
	b.mu.Unlock()
	if until == 0 {
		return outer, ok
	}
	now := time.Now()
	if own := now.Add(until - now.Sub(epoch)); !ok || own.Before(outer) {
		return own, true
	}
	return outer, true
}
