package driver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// lease is the value of a lock's key.
type lease struct {
	Epoch    int64     `json:"epoch"`
	Token    string    `json:"token"` // identifies the session
	Who      string    `json:"who"`
	Task     string    `json:"task"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Released bool      `json:"released,omitempty"`
}

// held reports whether the lease has an owner now.
func (l *lease) held(now time.Time) bool {
	return l.Token != "" && !l.Released && now.Before(l.Until)
}

func (l *lease) holder() deadletter.Holder {
	return deadletter.Holder{Who: l.Who, Task: l.Task, Since: l.Since, Until: l.Until}
}

// supersedes reports whether the second lease replaces the first. Both are JSON.
func supersedes(was, is []byte) bool {
	var old, next lease
	if json.Unmarshal(is, &next) != nil {
		return false
	}
	if was == nil || json.Unmarshal(was, &old) != nil {
		return true
	}
	return next.Epoch > old.Epoch || next.Epoch == old.Epoch && next.Token == old.Token
}

// lease returns the lease of a lock. It is zero if the state has none.
func (s State) lease(lock string) (l lease) {
	if raw := s[lockPrefix+lock]; raw != nil {
		_ = json.Unmarshal(raw, &l) // an unreadable value has no owner
	}
	return l
}

// LeaseHolder is [DLQ.LockHolder] for a DLQ whose locks are [Leases].
func LeaseHolder(ctx context.Context, d DLQ, lock string) (h deadletter.Holder, ok bool, err error) {
	state, err := d.Load(ctx)
	if l := state.lease(lock); l.held(time.Now()) {
		return l.holder(), true, nil
	}
	return h, false, err
}

// Leases are the locks of one session, on a broker that has no locks of its own. Each is an entry in the state. A goroutine
// renews them. Another session may replace an entry when it has expired. If two sessions take a lock at once, the one whose entry
// comes first gets it. Leases is a part of a [Session].
type Leases struct {
	dlq      DLQ
	duration time.Duration
	opts     LeaseOptions
	token    string
	end      context.CancelFunc // ends the renewals
	ended    chan struct{}

	mu        sync.Mutex
	mine      map[string]lease
	renewedAt time.Time // when the latest successful renewal began
	renewErr  error     // of the last renewal
	lost      error
}

// LeaseOptions are optional settings of [Leases].
type LeaseOptions struct {
	// Interval is the interval of renewals. Default: a third of the duration of a lease.
	Interval time.Duration
	// MinDuration returns the minimum duration of a lease, for the messages that were read and not removed yet.
	MinDuration func() time.Duration
	// OnRenewed is called after each renewal.
	OnRenewed func(context.Context)
}

// NewLeases returns the leases of a session of d. duration is how long each one is valid. When ctx ends, they are no longer renewed,
// and expire.
func NewLeases(ctx context.Context, d DLQ, duration time.Duration, o LeaseOptions) *Leases {
	if o.Interval == 0 {
		o.Interval = max(1, duration/3)
	}
	l := &Leases{dlq: d, duration: duration, opts: o, token: rand.Text(), mine: make(map[string]lease), ended: make(chan struct{})}
	ctx, l.end = context.WithCancel(ctx)
	go l.renewUntilDone(ctx)
	return l
}

// Lock implements [Session].
func (l *Leases) Lock(ctx context.Context, lock string, h deadletter.Holder) error {
	state, err := l.dlq.Load(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	was := state.lease(lock)
	if was.held(now) {
		return &deadletter.HeldError{DLQ: l.dlq.Info().DLQ, Holder: was.holder()}
	}
	next := lease{Epoch: was.Epoch + 1, Token: l.token, Who: h.Who, Task: h.Task, Since: now.UTC()}
	e, err := next.entry(lock, now.Add(l.newDuration()))
	if err != nil {
		return err
	}
	if err := l.dlq.Append(ctx, e); err != nil {
		return err
	}
	if state, err = l.dlq.Load(ctx); err != nil {
		return err
	}
	if owner := state.lease(lock); owner.Token != l.token {
		return &deadletter.HeldError{DLQ: l.dlq.Info().DLQ, Holder: owner.holder()}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mine) == 0 {
		l.renewedAt = now
	}
	l.mine[lock] = next
	return nil
}

func (l *lease) entry(lock string, until time.Time) (Entry, error) {
	l.Until = until.UTC()
	value, err := json.Marshal(l)
	if err != nil {
		return Entry{}, fmt.Errorf("writing a lease: %w", err)
	}
	return Entry{lockPrefix + lock, value}, nil
}

// newDuration returns the duration of a lease that is written now.
func (l *Leases) newDuration() time.Duration {
	if l.opts.MinDuration == nil {
		return l.duration
	}
	return max(l.duration, l.opts.MinDuration())
}

// entries returns the leases to write now.
func (l *Leases) entries(now time.Time, released bool) (entries []Entry, err error) {
	until := now.Add(l.newDuration())
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock, one := range l.mine {
		one.Released = released
		e, err := one.entry(lock, until)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// renew writes the leases again and checks that this session still owns them.
func (l *Leases) renew(ctx context.Context) error {
	began := time.Now()
	entries, err := l.entries(began, false)
	if err != nil || len(entries) == 0 {
		return err
	}
	if err := l.dlq.Append(ctx, entries...); err != nil {
		return err
	}
	state, err := l.dlq.Load(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for lock := range l.mine {
		if now := state.lease(lock); now.Token != l.token {
			l.lost = fmt.Errorf("%w: %s is held by %s now, for task %s", deadletter.ErrClaimLost, l.dlq.Info().DLQ, now.Who, now.Task)
			return l.lost
		}
	}
	if err := l.checkLocked(); err != nil { // it has expired, so another runner may be taking it
		return err
	}
	l.renewedAt = began
	return nil
}

// renewUntilDone renews the leases until ctx ends. It ignores errors of the broker; Check reports them when they have lasted too long.
func (l *Leases) renewUntilDone(ctx context.Context) {
	defer close(l.ended)
	tick := time.NewTicker(l.opts.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		err := l.renew(ctx)
		l.mu.Lock()
		l.renewErr = err
		l.mu.Unlock()
		switch {
		case errors.Is(err, deadletter.ErrClaimLost):
			return
		case err == nil && l.opts.OnRenewed != nil:
			l.opts.OnRenewed(ctx)
		}
	}
}

// Check implements [Session].
func (l *Leases) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkLocked()
}

func (l *Leases) checkLocked() error {
	if l.lost == nil && len(l.mine) > 0 && time.Since(l.renewedAt) > l.duration {
		l.lost = fmt.Errorf("%w: the lease on %s could not be renewed for %s and has expired; see whether the broker answers", deadletter.ErrClaimLost, l.dlq.Info().DLQ, l.duration)
		if l.renewErr != nil {
			l.lost = fmt.Errorf("%w. The last renewal: %w", l.lost, l.renewErr)
		}
	}
	return l.lost
}

// Close implements [Session]. It does not release the locks if one is lost or may be lost: it may have a new owner.
func (l *Leases) Close(ctx context.Context) error {
	l.end()
	<-l.ended
	if errors.Is(l.Check(), deadletter.ErrClaimLost) {
		return nil
	}
	entries, err := l.entries(time.Now(), true)
	if err != nil || len(entries) == 0 {
		return err
	}
	return l.dlq.Append(ctx, entries...)
}
