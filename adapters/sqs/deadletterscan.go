package sqs

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/deadletter"
)

const (
	deadWait  = time.Second // of a receive: SQS asks all its servers then
	emptyMost = 3           // receives without a message while it says that there are some
	// blurred is how far the clocks of SQS's hosts may be apart: what comes so
	// shortly after a scan began counts as having been there.
	blurred   = 500 * time.Millisecond
	justAfter = blurred + 2*time.Second
)

// deadScan reads the DLQ as far as it went when the scan began, by the time at which
// SQS was sent a message. It implements deadletter.Scan.
type deadScan struct {
	d     *desk
	from  deadletter.From
	began time.Time       // by SQS's clock
	start time.Time       // by ours
	buf   []types.Message // received, not looked at yet
	later []string        // MessageIds of what came after it began
	seen  map[string]bool // the same of what a scan from the end has given out
	over  bool            // its end was told: the next call looks for a new one
	alone bool            // it has a lease of its own
}

// scan begins a scan of a reader, the first of which enters the DLQ.
func (d *desk) scan(ctx context.Context, from deadletter.From) (*deadScan, error) {
	if len(d.scans) == 0 {
		if err := d.l.enter(ctx); err != nil {
			return nil, err
		}
	}
	s := &deadScan{d: d, from: from, seen: make(map[string]bool)}
	if err := s.begin(ctx); err != nil {
		if len(d.scans) == 0 { // also where ctx has ended: others would wait until the lease is over
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.q.c.cfg.SendTimeout)
			defer cancel()
			err = errors.Join(err, d.l.leave(own))
		}
		return nil, err
	}
	d.scans = append(d.scans, s)
	return s, nil
}

// begin notes what time it is by SQS's clock: that of a message which has just been
// written.
func (s *deadScan) begin(ctx context.Context) (err error) {
	s.start = time.Now()
	if err = s.d.l.renew(ctx); err == nil {
		s.began, err = s.d.q.state(ctx, false, &deadletter.Record{}, nil)
	}
	return err
}

// Next implements [deadletter.Scan].
func (s *deadScan) Next(ctx context.Context) (*deadletter.Message, error) {
	if err := errors.Join(ctx.Err(), s.d.l.check()); err != nil {
		return nil, err
	}
	if s.over && s.from == deadletter.Start {
		if err := errors.Join(s.d.release(ctx, s, s.later), s.begin(ctx)); err != nil {
			return nil, err
		}
		s.later = nil
	}
	s.over = false
	for empty := 0; ; {
		if len(s.buf) == 0 {
			more, err := s.fill(ctx, &empty)
			if err != nil {
				return nil, err
			}
			if !more {
				s.over = true
				return nil, io.EOF
			}
			continue
		}
		m := s.buf[0]
		s.buf = s.buf[1:]
		if dead := s.look(&m); dead != nil {
			return dead, nil
		}
	}
}

// fill receives; more is false at the end.
func (s *deadScan) fill(ctx context.Context, empty *int) (more bool, err error) {
	q := s.d.q
	for _, o := range s.d.scans {
		if o == s {
			continue
		}
		if err := o.yield(ctx); err != nil {
			return false, err
		}
	}
	if s.buf, err = s.d.receive(ctx, s, deadWait); err != nil || len(s.buf) > 0 {
		return true, err
	}
	*empty++
	visible, _, err := q.counts(ctx, q.dlq.url, q.dlq.name)
	switch {
	case err != nil:
		return false, err
	case visible == 0 || s.from == deadletter.End:
		return false, nil
	case q.dlq.fifo && s.holds():
		return false, deadletter.ErrBehind
	default:
		return *empty < emptyMost, nil
	}
}

func (s *deadScan) holds() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return len(s.d.held) > 0
}

// look says what a received message is to this scan: nil where it is passed over.
func (s *deadScan) look(m *types.Message) *deadletter.Message {
	id, at := aws.ToString(m.MessageId), sent(m)
	if s.from == deadletter.End {
		if at.Before(s.began) || s.seen[id] {
			return nil
		}
		s.seen[id] = true
		return s.d.q.message(m, s)
	}
	dead := s.d.q.message(m, s)
	again := dead.State.Replays > 0 && s.d.sent[dead.ID] && !at.Before(s.began.Add(-blurred))
	if again || !at.Before(s.began.Add(blurred)) {
		s.later = append(s.later, id)
		return nil
	}
	return dead
}

// yield leaves the queue to another scan: one for what comes hands back what it has
// passed, because the other is to see it; of a FIFO queue the other one hands back
// what it has not looked at, because it holds up its groups.
func (s *deadScan) yield(ctx context.Context) error {
	if s.from == deadletter.End {
		return s.d.release(ctx, s, nil)
	}
	if !s.d.q.dlq.fifo || len(s.buf) == 0 {
		return nil
	}
	ids := make([]string, len(s.buf))
	for i, m := range s.buf {
		ids[i] = aws.ToString(m.MessageId)
	}
	s.buf = nil
	return s.d.release(ctx, s, ids)
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
	err := d.release(ctx, s, nil)
	d.scans = slices.Delete(d.scans, at, at+1)
	if len(d.scans) == 0 && !errors.Is(d.l.check(), deadletter.ErrLost) {
		err = errors.Join(err, d.l.leave(ctx))
	}
	if s.alone {
		d.l.end()
	}
	return err
}

// Scan implements [deadletter.Queue]. It waits while another looks.
func (q *deadLetters) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	l, err := newLessee(q)
	if err != nil {
		return nil, err
	}
	s, err := l.desk.scan(ctx, from)
	if err != nil {
		l.end()
		return nil, err
	}
	s.alone = true
	return s, nil
}
