package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// deadClaim is the right to change a DLQ. It implements deadletter.Claim.
type deadClaim struct {
	q    *deadQueue
	stop func() // ends the renewals and waits for it

	mu    sync.Mutex
	lease lease
	good  time.Time // when the latest renewal that holds was begun
	lost  error

	reach   map[int32]reach // what of the DLQ was seen, for what may be deleted
	trimmed time.Time
	out     deadOut
}

// Claim implements [deadletter.Queue]. Of two that claim at once the one whose
// record stands first in the state topic has it.
func (q *deadQueue) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	there, err := q.look(ctx)
	if err != nil {
		return nil, err
	}
	if q.elsewhere && there[q.info.Back] == nil {
		return nil, fmt.Errorf("kafka: topic %s does not exist, to which the messages of %s are to go back: name one that group %s reads", q.info.Back, q.info.DLQ, q.info.Group)
	}
	if there[q.info.Back] == nil { // nobody would read it
		return nil, fmt.Errorf("kafka: %s, the way back of group %s, does not exist: let the group subscribe to %s first", q.info.Back, q.info.Group, q.info.Origin)
	}
	if err := q.provisionState(there); err != nil {
		return nil, err
	}
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	now := time.Now()
	q.mu.Lock()
	was := q.ledger.lease
	q.mu.Unlock()
	if was.held(now) {
		return nil, &deadletter.HeldError{DLQ: q.info.DLQ, Holder: was.holder()}
	}
	c := &deadClaim{q: q, good: now, reach: make(map[int32]reach), trimmed: now, lease: lease{
		Epoch: was.Epoch + 1, Token: rand.Text(), Who: holder.Who, Task: holder.Task, Since: now.UTC(), Lasts: q.lease,
	}}
	if err := c.renew(ctx); err != nil {
		if errors.Is(err, deadletter.ErrLost) {
			q.mu.Lock()
			defer q.mu.Unlock()
			return nil, &deadletter.HeldError{DLQ: q.info.DLQ, Holder: q.ledger.lease.holder()}
		}
		return nil, err
	}
	c.keep()
	q.mu.Lock()
	q.claims = append(q.claims, c)
	q.mu.Unlock()
	return c, nil
}

// renew writes the lease anew, and looks whether it is still ours: who was stopped
// for long finds the DLQ in other hands.
func (c *deadClaim) renew(ctx context.Context) error {
	began := time.Now()
	l := c.lease
	l.Renewed = began.UTC()
	e, err := jsonEntry(claimKey, l)
	if err != nil {
		return err
	}
	if err := c.q.note(ctx, e); err != nil {
		return err
	}
	if err := c.q.refresh(ctx); err != nil {
		return err
	}
	c.q.mu.Lock()
	now := c.q.ledger.lease
	c.q.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Token != c.lease.Token {
		c.lost = fmt.Errorf("%w: %s is held by %s now, for task %s", deadletter.ErrLost, c.q.info.DLQ, now.Who, now.Task)
		return c.lost
	}
	c.good = began
	return nil
}

// keep renews the lease until stop is called.
func (c *deadClaim) keep() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(c.lease.Lasts / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			// An error that is not the loss is the broker's; check says so when
			// it has lasted too long.
			if err := c.renew(ctx); errors.Is(err, deadletter.ErrLost) {
				return
			}
		}
	})
	c.stop = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
}

// check is the error of a claim that is lost, or may be.
func (c *deadClaim) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil && time.Since(c.good) > c.lease.Lasts {
		c.lost = fmt.Errorf("%w: %s could not be renewed for %s, longer than it lasts; see whether the brokers answer", deadletter.ErrLost, c.q.info.DLQ, c.lease.Lasts)
	}
	return c.lost
}

// Scan implements [deadletter.Claim].
func (c *deadClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s, err := c.q.scan(ctx, from, c)
	if err != nil {
		return nil, err // and not a scan that is nil
	}
	return s, nil
}

// Wanted implements [deadletter.Claim].
func (c *deadClaim) Wanted(ctx context.Context, task string) (deadletter.Wanted, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	if err := c.q.refresh(ctx); err != nil {
		return "", err
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.q.ledger.wants[task], nil
}

// Release implements [deadletter.Claim]. It gives back what is settled, too.
func (c *deadClaim) Release(ctx context.Context) error {
	c.stop()
	defer c.out.end()
	c.q.mu.Lock()
	c.q.claims = slices.DeleteFunc(c.q.claims, func(x *deadClaim) bool { return x == c })
	c.q.mu.Unlock()
	if err := c.check(); err != nil {
		return nil // somebody else has it, or may have it as soon as it has run out
	}
	c.trim(ctx)
	l := c.lease
	l.Renewed, l.Released = time.Now().UTC(), true
	e, err := jsonEntry(claimKey, l)
	if err != nil {
		return err
	}
	return c.q.note(ctx, e)
}
