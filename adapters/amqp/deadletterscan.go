package amqp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
)

// desk is where the scans of one reader are: a look has one, a runner may have
// several, which read one after another. What one of them has in hand the others
// cannot see, so they count.
type desk struct {
	q     *deadLetters
	conn  *amqp.Connection
	runs  bool // it belongs to a claim
	leave func() error
	scans []*deadScan
	marks map[deadletter.Position]deadletter.Outcome
	until int  // deliveries of a message at which it is left alone; 0 for any
	least int  // the most deliveries of a message that a scan from the start has met
	whole bool // such a scan came to the end
}

// deadScan reads the DLQ as far as it went when the scan began. It implements
// deadletter.Scan.
type deadScan struct {
	d    *desk
	h    *hand // nil while it has nothing in hand
	skip int   // messages at the head of the queue that it has seen, or is not to see
	left int   // messages behind them up to its end
	over bool  // its end was told: the next call looks for a new one
	met  int   // the most deliveries of a message
	from deadletter.From
}

// scan begins a scan of a reader, the first of which enters the DLQ.
func (d *desk) scan(ctx context.Context, from deadletter.From) (*deadScan, error) {
	if len(d.scans) == 0 {
		if err := d.enter(ctx); err != nil {
			return nil, err
		}
	}
	s := &deadScan{d: d, from: from}
	ready, err := d.ready(ctx, s)
	if err == nil && from == deadletter.Start {
		s.left = ready
		err = s.open()
	}
	if err != nil {
		if len(d.scans) == 0 {
			err = errors.Join(err, d.leave())
		}
		return nil, err
	}
	if from == deadletter.End {
		s.skip, s.over = ready, true
	}
	d.scans = append(d.scans, s)
	return s, nil
}

func (d *desk) enter(ctx context.Context) error {
	leave, err := d.q.enter(ctx, d.conn, d.runs)
	if err != nil {
		return err
	}
	d.leave = leave
	r, err := d.q.record(ctx)
	if err == nil && d.until > 0 && r.Met >= d.until {
		err = d.q.worn(r.Met)
	}
	if err != nil {
		return errors.Join(err, leave())
	}
	d.marks = r.Marks
	return nil
}

// worn refuses to look where a look might end a message.
func (q *deadLetters) worn(met int) error {
	return fmt.Errorf("amqp: %s is not looked at: a message in it was delivered %d times, and the broker takes it away at %d (its delivery limit); %d deliveries are left for a replay or a purge. "+
		"Raise the limit, by a policy or the queue's arguments, or set DeliveryLimit if it is higher", q.info.DLQ, met, q.limit, max(0, q.limit-2-met))
}

// ready is how many messages lie ready when no other scan of this reader takes any.
func (d *desk) ready(ctx context.Context, but *deadScan) (int, error) {
	if err := d.others(ctx, but); err != nil {
		return 0, err
	}
	ch, err := d.conn.Channel()
	if err != nil {
		return 0, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	defer ch.Close()
	ready, _, err := certain(ch, d.q.info.DLQ)
	return ready, err
}

// Next implements [deadletter.Scan].
func (s *deadScan) Next(ctx context.Context) (*deadletter.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.over {
		if err := s.again(ctx); err != nil {
			return nil, err
		}
	}
	for s.left > 0 {
		d, ok, err := s.pull(ctx, s.skip+s.left)
		if err != nil {
			return nil, err
		}
		if !ok {
			s.skip, s.left = 0, 0
			break
		}
		if s.skip > 0 {
			s.skip--
			continue
		}
		s.left--
		count, _ := deliveryCount(d.Headers)
		if s.met = max(s.met, count); s.d.until > 0 && s.met >= s.d.until {
			return nil, s.d.q.worn(s.met)
		}
		return s.d.q.message(&d, s), nil
	}
	if s.from == deadletter.Start {
		s.d.whole, s.d.least = true, s.met
	}
	s.over = true
	return nil, io.EOF
}

// again finds out what has come since the end was told. It is counted, not looked
// at: where nothing has come nothing is read.
func (s *deadScan) again(ctx context.Context) error {
	if s.h != nil {
		if err := s.h.pause(); err != nil {
			return err
		}
	}
	ready, err := s.d.ready(ctx, s)
	if err != nil {
		return err
	}
	if s.left = ready - s.skip; s.left <= 0 {
		s.left = 0
		return io.EOF
	}
	s.over = false
	return nil
}

// pull takes the next message in hand, whether it is to be seen or not.
func (s *deadScan) pull(ctx context.Context, most int) (d grasped, ok bool, err error) {
	if s.h == nil || len(s.h.buf) == 0 {
		if err := s.d.others(ctx, s); err != nil {
			return d, false, err
		}
	}
	if s.h == nil {
		if err = s.open(); err != nil {
			return d, false, err
		}
	}
	return s.h.next(ctx, most)
}

// open begins to read. What it takes from the head lies there no more for the others.
func (s *deadScan) open() (err error) {
	s.h, err = openHand(s.d.conn, s.d.q.info.DLQ, s.d.q.c.cfg.RetryBytes, func() {
		for _, o := range s.d.scans {
			if o != s {
				o.skip = max(0, o.skip-1)
			}
		}
	})
	return err
}

// others has all scans but one leave the queue to that.
func (d *desk) others(ctx context.Context, but *deadScan) error {
	for _, o := range d.scans {
		if o != but {
			if err := o.yield(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// yield leaves the queue to another scan. One that waits at the end hands back what
// it has passed, because the other is to see it; any other keeps it, because it
// would see it twice.
func (s *deadScan) yield(ctx context.Context) error {
	switch {
	case s.h == nil:
		return nil
	case s.from == deadletter.Start:
		return s.h.pause()
	default:
		return s.handBack(ctx)
	}
}

// handBack hands back all that the scan has in hand. It lies at the head then. A
// scan from the start sees it again; one for what comes passes it over.
func (s *deadScan) handBack(ctx context.Context) error {
	h := s.h
	s.h = nil
	if h == nil {
		return nil
	}
	n := h.held()
	passed := n - len(h.buf)
	err := h.back(ctx)
	if s.from == deadletter.Start {
		s.left += passed
	} else {
		s.skip += passed
	}
	for _, o := range s.d.scans {
		if o != s && o.from == deadletter.End {
			o.skip += n
		}
	}
	return err
}

// Close implements [deadletter.Scan].
func (s *deadScan) Close() error {
	d := s.d
	at := slices.Index(d.scans, s)
	if at < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.q.c.cfg.SendTimeout)
	defer cancel()
	err := s.handBack(ctx)
	if d.conn.IsClosed() {
		err = nil // the broker has all back, and the fence is down
	}
	d.scans = slices.Delete(d.scans, at, at+1)
	if len(d.scans) > 0 {
		return err
	}
	if d.q.limit > 0 && !d.conn.IsClosed() {
		err = errors.Join(err, d.q.meet(ctx, max(d.least, s.met), d.whole))
	}
	return errors.Join(err, d.leave())
}

// meet notes how often a message of the DLQ was delivered at most: the next look
// is refused before it begins where that is too often.
func (q *deadLetters) meet(ctx context.Context, met int, whole bool) error {
	r, err := q.record(ctx)
	if err != nil || met+1 <= r.Met && !whole || met+1 == r.Met {
		return err
	}
	return q.note(ctx, func(r *deadletter.Record) {
		if met++; whole {
			r.Met = met // handing it back counts
		} else {
			r.Met = max(r.Met, met)
		}
	})
}

// Scan implements [deadletter.Queue]. It waits while another looks.
func (q *deadLetters) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	conn, err := q.looking.get(ctx)
	if err != nil {
		return nil, err
	}
	d := &desk{q: q, conn: conn, until: q.limit / 2}
	if q.limit > 0 {
		d.until = max(1, d.until)
	}
	return d.scan(ctx, from)
}
