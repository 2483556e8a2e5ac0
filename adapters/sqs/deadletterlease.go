package sqs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// lessee has a right to the DLQ for as long as it renews it: a claim, or one that
// looks.
type lessee struct {
	q     *deadLetters
	token string
	desk  *desk // what it has in hand
	stop  func()

	// Of the keeper and its owner, guarded by desk.mu.
	claims, looks bool
	good          time.Time // when the latest renewal that holds was begun
	lost          error
}

// last is how long a right lasts from a renewal on that it was begun with: longer
// than anything that is in hand, or that is received until the next one, stays
// hidden.
func (l *lessee) last() time.Duration { return max(2*l.q.lease, l.desk.longest()+l.q.lease/2) }

// renew writes the leases anew, and looks whether they are still ours.
func (l *lessee) renew(ctx context.Context) error {
	began := time.Now()
	until := began.Add(l.last()).UTC()
	lost := false
	err := l.q.note(ctx, func(r *deadletter.Record) bool { return l.extend(r, until, &lost) })
	l.desk.mu.Lock()
	defer l.desk.mu.Unlock()
	switch {
	case err != nil:
		return err
	case lost:
		l.lost = fmt.Errorf("%w: another has %s now", deadletter.ErrLost, l.q.info.DLQ)
		return l.lost
	}
	l.good = began
	return nil
}

// extend does that in a record that is being changed.
func (l *lessee) extend(r *deadletter.Record, until time.Time, lost *bool) bool {
	l.desk.mu.Lock()
	defer l.desk.mu.Unlock()
	mine := func(lease *deadletter.Lease) bool {
		if lease == nil || lease.Token != l.token {
			*lost = true
			return false
		}
		lease.Until = until
		return true
	}
	if l.claims && !mine(r.Claim) || l.looks && !mine(r.Look) {
		return false
	}
	return true
}

// check is the error of a right that is lost, or may be.
func (l *lessee) check() error {
	l.desk.mu.Lock()
	defer l.desk.mu.Unlock()
	if l.lost == nil && time.Since(l.good) > 2*l.q.lease { // it lasts a little longer
		l.lost = fmt.Errorf("%w: %s could not be renewed for %s; see whether SQS answers", deadletter.ErrLost, l.q.info.DLQ, 2*l.q.lease)
	}
	return l.lost
}

func newLessee(q *deadLetters) (*lessee, error) {
	l := &lessee{q: q, token: rand.Text(), good: time.Now()}
	l.desk = &desk{q: q, l: l, held: make(map[string]*held)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	if q.lessees == nil {
		q.lessees = make(map[*lessee]bool)
	}
	q.lessees[l] = true
	l.keep()
	return l, nil
}

// end stops the renewals.
func (l *lessee) end() {
	l.stop()
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	delete(l.q.lessees, l)
}

// keep renews until stop is called: first the leases, then what is in hand.
func (l *lessee) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(l.q.lease / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			l.desk.mu.Lock()
			idle := !l.claims && !l.looks
			l.desk.mu.Unlock()
			if idle {
				continue
			}
			// An error that is not the loss is SQS's; check says so when it has
			// lasted too long.
			switch err := l.renew(ctx); {
			case errors.Is(err, deadletter.ErrLost):
				return
			case err == nil:
				l.desk.extend(ctx)
			}
		}
	})
	l.stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
}

// enter takes the right to read the DLQ. While a runner reads, another is refused
// with a deadletter.HeldError; while somebody only looks, it waits for the end of
// that. One who died looks like one who is alive, until his lease runs out.
func (l *lessee) enter(ctx context.Context) error {
	first := make(map[string]time.Time) // when the leases that were met would end
	for {
		var met, runner *deadletter.Lease
		err := l.q.note(ctx, func(r *deadletter.Record) bool {
			now := time.Now()
			if r.Look.Held(now) && r.Look.Token != l.token {
				met, runner = r.Look, nil
				if r.Claim != nil && r.Claim.Token == met.Token {
					runner = r.Claim
				}
				return false
			}
			met = nil
			l.desk.mu.Lock()
			defer l.desk.mu.Unlock()
			l.looks, l.good = true, now
			r.Look = &deadletter.Lease{Token: l.token, Since: now.UTC(), Until: now.Add(2 * l.q.lease).UTC()}
			l.desk.marks = r.Marks
			return true
		})
		if err != nil || met == nil {
			return err
		}
		until, known := first[met.Token]
		if !known {
			first[met.Token] = met.Until
		} else if runner != nil && met.Until.After(until) {
			return &deadletter.HeldError{DLQ: l.q.info.DLQ, Holder: runner.Holder()}
		}
		if !sleep(ctx, l.q.lease/10) {
			return fmt.Errorf("sqs: waiting until nobody else looks at %s: %w", l.q.info.DLQ, ctx.Err())
		}
	}
}

// leave gives that right back.
func (l *lessee) leave(ctx context.Context) error {
	l.desk.mu.Lock()
	l.looks = false
	l.desk.mu.Unlock()
	return l.q.note(ctx, func(r *deadletter.Record) bool {
		if r.Look == nil || r.Look.Token != l.token {
			return false
		}
		r.Look = nil
		return true
	})
}
