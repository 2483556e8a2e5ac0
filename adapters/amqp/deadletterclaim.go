package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
)

// deadClaim is the right to change a DLQ: a fence on a connection of its own, on
// which all is read and removed, too. It lasts for as long as the connection. It
// implements deadletter.Claim.
//
// The arrows of a window, and what is so when the process dies there: before the
// send, nothing; after it, the window lies in the DLQ, given back by the broker, and
// on the way back, too; after the acks, its messages are on the way back only, and
// the task's record, which comes last, counts one window too few.
type deadClaim struct {
	q    *deadLetters
	link *link
	conn *amqp.Connection
	desk *desk
	even bool // all that was read since is settled
}

// Claim implements [deadletter.Queue].
func (q *deadLetters) Claim(ctx context.Context, holder deadletter.Holder) (deadletter.Claim, error) {
	if err := q.there(ctx, q.info.Back, "it is the way back of queue %[2]s, which has never been subscribed to"); err != nil {
		return nil, err
	}
	c := &deadClaim{q: q, link: &link{cfg: &q.c.cfg, name: "redeliver, replaying dead letters", reads: true}}
	var err error
	if c.conn, err = c.link.get(ctx); err != nil {
		return nil, err
	}
	if err = q.mark(c); err == nil {
		err = raise(c.conn, q.fence(claimSuffix))
	}
	if err == nil {
		err = q.note(ctx, func(r *deadletter.Record) {
			r.Claim = &deadletter.Lease{Who: holder.Who, Task: holder.Task, Since: time.Now().UTC()}
		})
	}
	if err == nil {
		c.desk = &desk{q: q, conn: c.conn, runs: true}
		if q.limit > 0 {
			c.desk.until = max(1, q.limit-2)
		}
		return c, nil
	}
	q.unmark(c)
	c.link.close()
	if !errors.Is(err, errFenced) {
		return nil, err
	}
	h, ok, failed := q.Holder(ctx)
	if failed != nil {
		return nil, failed
	}
	if !ok { // it has just gone
		h = (*deadletter.Lease)(nil).Holder()
	}
	return nil, &deadletter.HeldError{DLQ: q.info.DLQ, Holder: h}
}

// lost says of an error whether the claim is gone.
func (c *deadClaim) lost(err error) error {
	if c.conn.IsClosed() {
		return fmt.Errorf("%w: the connection that held %s is gone: %w", deadletter.ErrLost, c.q.info.DLQ, err)
	}
	return err
}

var errClaimGone = errors.New("the broker has given back what was in hand")

func (c *deadClaim) check() error {
	if c.conn.IsClosed() {
		return c.lost(errClaimGone)
	}
	return nil
}

// Scan implements [deadletter.Claim].
func (c *deadClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	s, err := c.desk.scan(ctx, from)
	if err != nil {
		return nil, c.lost(err)
	}
	return &claimScan{deadScan: s, c: c}, nil
}

// claimScan is a scan of messages that are to be settled.
type claimScan struct {
	*deadScan
	c *deadClaim
}

// Next implements [deadletter.Scan].
func (s *claimScan) Next(ctx context.Context) (*deadletter.Message, error) {
	m, err := s.deadScan.Next(ctx)
	if err == nil {
		s.c.even = false
	} else if s.c.conn.IsClosed() {
		err = s.c.lost(err)
	}
	return m, err
}

// Send implements [deadletter.Claim].
func (c *deadClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	frame := c.frame()
	return c.write(ctx, msgs, c.q.info.Back, func(m *deadletter.Message) (amqp.Publishing, error) {
		st := deadletter.NewState(m, c.q.info)
		return recordOfDead(m, m.Headers).waiting(&st, time.Time{}, frame, spare)
	})
}

// Add implements [deadletter.Claim]. What the broker itself wrote of a message
// cannot be written again: it is in redeliver's headers then.
func (c *deadClaim) Add(ctx context.Context, msgs []*deadletter.Message) []error {
	frame := c.frame()
	return c.write(ctx, msgs, c.q.info.DLQ, func(m *deadletter.Message) (amqp.Publishing, error) {
		if m.Filler == deadletter.FilledByRedeliver || m.Filler == deadletter.FilledByRabbitMQ {
			return recordOfDead(m, m.Headers).dead(&m.State, frame), nil
		}
		headers := slices.Concat(m.Headers, m.Foreign)
		return recordOfDead(m, headers).publishing(nil), nil
	})
}

// frame is how large the headers of what is published may be.
func (c *deadClaim) frame() int {
	if n := c.q.c.publishing.frameMax(); n > 0 {
		return n
	}
	return c.link.frameMax()
}

func (c *deadClaim) write(ctx context.Context, msgs []*deadletter.Message, queue string, compose func(*deadletter.Message) (amqp.Publishing, error)) []error {
	errs := sameError(len(msgs), c.check())
	if len(msgs) == 0 || errs[0] != nil {
		return errs
	}
	timeout := c.q.c.cfg.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	s := c.q.c.forwarded
	waiting := map[int]*pending{}
	settle := func() {
		for i, w := range waiting {
			errs[i] = w.wait(ctx)
		}
		clear(waiting)
	}
	for i, m := range msgs {
		p, err := compose(m)
		if err == nil && !s.reserved() {
			settle() // who holds places must not wait for one
			err = s.reserve(ctx)
		}
		if err == nil {
			waiting[i], err = s.start(ctx, "", queue, p)
		}
		if err != nil {
			delete(waiting, i)
			errs[i] = err
		}
	}
	settle()
	for i, err := range errs {
		if !refuses(err) {
			continue
		}
		p, _ := compose(msgs[i]) // as before, and it went well then
		_, errs[i] = s.alone(ctx, "", queue, p)
	}
	return errs
}

func sameError(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

type held struct {
	hand *hand
	by   *grip
}

// Forget implements [deadletter.Forgetter].
func (c *deadClaim) Forget(ctx context.Context, met map[deadletter.Position]bool) error {
	if len(c.desk.marks) == 0 {
		return nil
	}
	return c.q.note(ctx, func(r *deadletter.Record) { r.Forget(met, time.Now()) })
}

// Settle implements [deadletter.Claim].
func (c *deadClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	tags := make(map[held][]uint64)
	marks := make(map[deadletter.Position]deadletter.Outcome)
	for _, s := range done {
		at, ok := s.Message.Native.(*corpse)
		if !ok {
			return fmt.Errorf("amqp: message %s at %s was read by another adapter (%T)", s.Message.ID, s.Message.Position, s.Message.Native)
		}
		if !s.Outcome.Out() {
			marks[s.Message.Position] = s.Outcome
			continue
		}
		if at.scan.h == nil || at.scan.h != at.hand {
			return c.lost(fmt.Errorf("amqp: message %s of %s is in hand no more", s.Message.ID, c.q.info.DLQ))
		}
		tags[held{at.hand, at.by}] = append(tags[held{at.hand, at.by}], at.tag)
		if s.Message.Mark != "" {
			marks[s.Message.Position] = ""
		}
	}
	for where, all := range tags {
		if err := where.hand.ack(where.by, all); err != nil {
			return c.lost(err)
		}
	}
	var full error
	err := c.q.note(ctx, func(r *deadletter.Record) {
		if full = r.Mark(marks); full != nil {
			return
		}
		r.Put(t)
		c.desk.marks = maps.Clone(r.Marks)
	})
	if err != nil {
		return c.lost(err)
	}
	if full != nil {
		return fmt.Errorf("amqp: marking in %s: %w", c.q.info.DLQ, full)
	}
	c.even = true
	return c.rest(ctx)
}

// rest hands back what a scan has had in hand for half of the time for which the
// broker lets it. It sees that again. All that it gave out is settled.
func (c *deadClaim) rest(ctx context.Context) error {
	if !c.even {
		return nil
	}
	for _, s := range c.desk.scans {
		if s.h != nil && !s.h.since.IsZero() && time.Since(s.h.since) > c.q.c.cfg.ConsumerTimeout/2 {
			if err := s.handBack(ctx); err != nil {
				return c.lost(err)
			}
		}
	}
	return nil
}

// Save implements [deadletter.Claim].
func (c *deadClaim) Save(ctx context.Context, t deadletter.Task) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.lost(c.q.note(ctx, func(r *deadletter.Record) { r.Put(t) }))
}

// Wanted implements [deadletter.Claim].
func (c *deadClaim) Wanted(ctx context.Context, task string) (deadletter.Wanted, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	if err := c.rest(ctx); err != nil {
		return "", err
	}
	r, err := c.q.record(ctx)
	return r.Wants[task].Wanted, err
}

// Release implements [deadletter.Claim].
func (c *deadClaim) Release(ctx context.Context) error {
	c.q.unmark(c)
	defer c.link.close()
	if c.conn.IsClosed() {
		return nil // somebody else has it, or may have it
	}
	err := c.q.note(ctx, func(r *deadletter.Record) { r.Claim = nil })
	return errors.Join(err, lower(c.conn, c.q.fence(claimSuffix)))
}
