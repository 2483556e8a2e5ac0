package pubsub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// DefaultQuiet is DeadLetterConfig.Quiet where that is not set.
const DefaultQuiet = time.Second

// DeadLetterConfig says which DLQ is opened, and where its letters are kept. Topic and
// Dir are required.
type DeadLetterConfig struct {
	// Topic is the topic whose messages failed.
	Topic string
	// Dir is the directory that the letters are taken into, one for each DLQ. It is
	// made where it is not there. It must be on a disk that keeps what is synced, and
	// knows flock; several processes of one host may use it at once. Two directories
	// would share the letters of a DLQ between them.
	Dir string
	// DLQ is a topic that somebody else fills for this group and origin, Watermill's
	// poison queue. Default: the DLQ of redeliver.
	DLQ string
	// Quiet is for how long nothing has come from the DLQ's topic when a look takes
	// that for all there is: a Subscriber does not tell. It must be longer than
	// Subscriber takes to begin and to bring the next message, and each look from the
	// start takes as long. A look goes on after ten times Quiet in any case. Default 1 s.
	Quiet time.Duration
}

// DeadLetters opens the DLQ of a topic. A Subscriber cannot look at a message without
// taking it, so while the queue is open its letters are taken from the DLQ's topic, by
// subscribing as the group, and written to Dir; only what is synced there is acked. From
// then on that directory is the DLQ: what is not in it any more was replayed, edited or
// purged. The client must stay open for as long as the queue is used.
func (c *Client) DeadLetters(ctx context.Context, cfg DeadLetterConfig) (deadletter.Queue, error) {
	q, err := c.deadLetters(ctx, cfg)
	if err != nil {
		return nil, err // and not a queue that is nil
	}
	return q, nil
}

func (c *Client) deadLetters(ctx context.Context, cfg DeadLetterConfig) (*deadLetters, error) {
	if cfg.Quiet == 0 {
		cfg.Quiet = DefaultQuiet
	}
	var ps redeliver.Problems
	if cfg.Topic == "" {
		ps.Add("Topic", `""`, "is required: the topic whose messages failed")
	}
	if cfg.Dir == "" {
		ps.Add("Dir", `""`, "is required: where the letters are kept")
	}
	ps.Duration("Quiet", cfg.Quiet, time.Millisecond, time.Hour)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	l, err := c.ready(cfg.Topic)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	q := &deadLetters{
		shelf: shelf{dir}, c: c, layout: l, quiet: cfg.Quiet,
		info: deadletter.Info{Broker: "watermill", DLQ: l.dlq, Origin: l.topic, Group: l.group, Back: l.back, Look: deadletter.FreeLook},
	}
	if cfg.DLQ != "" {
		q.info.DLQ = cfg.DLQ
		if cfg.DLQ == l.topic || cfg.DLQ == l.back {
			ps.Add("DLQ", cfg.DLQ, "must not be the origin, nor the way back")
			return nil, fmt.Errorf("pubsub: %w", ps.Err())
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pubsub: %w", err)
	}
	if err := q.own(ctx); err != nil {
		return nil, err
	}
	if err := q.catchUp(ctx); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// deadLetters is the DLQ of one subscription, on a shelf. It implements deadletter.Queue.
type deadLetters struct {
	shelf

	c      *Client
	layout *layout
	info   deadletter.Info
	quiet  time.Duration

	taking sync.Mutex // one at a time begins to take letters

	mu     sync.Mutex
	intake *intake // nil while another process takes them
	claims map[*deadClaim]bool
	closed bool
	known  reach
}

// reach is how far a file of letters was looked through for its end.
type reach struct {
	base, at int64 // the file, and the bytes of it
	next     int64 // the number behind the last letter
}

// own notes whose letters the directory has, and refuses that of another DLQ.
func (q *deadLetters) own(ctx context.Context) error {
	return q.alone(ctx, func() error {
		st, err := q.state()
		switch {
		case err != nil:
			return err
		case st.DLQ == "":
			return q.change(func(st *shelfState) error {
				st.DLQ, st.Origin, st.Group = q.info.DLQ, q.info.Origin, q.info.Group
				return nil
			})
		case st.DLQ != q.info.DLQ || st.Origin != q.info.Origin || st.Group != q.info.Group:
			var ps redeliver.Problems
			ps.Add("Dir", q.dir, fmt.Sprintf("must be of this DLQ alone: it has the letters of %s, of topic %s and group %s", st.DLQ, st.Origin, st.Group))
			return fmt.Errorf("pubsub: %w", ps.Err())
		default:
			return nil
		}
	})
}

// Info implements [deadletter.Queue].
func (q *deadLetters) Info() deadletter.Info { return q.info }

// Count implements [deadletter.Queue]: what was taken and is not settled. More may lie
// in the topic. While no letters can be taken, that is its error.
func (q *deadLetters) Count(ctx context.Context) (n int64, exact bool, err error) {
	if err := q.take(ctx); err != nil {
		return 0, false, err
	}
	if err := q.trouble(); err != nil {
		return 0, false, err
	}
	bases, err := q.bases()
	if err != nil {
		return 0, false, err
	}
	end, err := q.end()
	if err != nil {
		return 0, false, err
	}
	for i, base := range bases {
		until := end
		if i+1 < len(bases) {
			until = bases[i+1]
		}
		out, err := q.settled(base)
		if err != nil {
			return 0, false, err
		}
		n += max(0, until-base-out.count())
	}
	return n, false, nil
}

// end is the number behind the last letter. It goes on from where it was; what was not
// written whole there, and is cut off, may have put that into the middle of a line.
func (q *deadLetters) end() (int64, error) {
	bases, err := q.bases()
	if err != nil || len(bases) == 0 {
		return firstLetter, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	last := bases[len(bases)-1]
	if q.known.base == last && q.known.at > 0 {
		if err := q.reach(); err == nil {
			return q.known.next, nil
		}
	}
	q.known = reach{base: last, next: last}
	if err := q.reach(); err != nil {
		return 0, err
	}
	return q.known.next, nil
}

// reach reads on behind the last letter that is known.
func (q *deadLetters) reach() error {
	l, err := q.open(q.known.base)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	if err := l.skip(q.known.at); err != nil {
		return err
	}
	for {
		one, err := l.letter()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		q.known.at, q.known.next = l.at, one.N+1
	}
}

// catchUp returns when nothing has come for Quiet, or things have come for ten times that.
func (q *deadLetters) catchUp(ctx context.Context) error {
	if err := q.take(ctx); err != nil {
		return err
	}
	end, err := q.end()
	if err != nil {
		return err
	}
	tick := time.NewTicker(max(time.Millisecond, q.quiet/8))
	defer tick.Stop()
	began := time.Now()
	for calm := began; time.Since(calm) < q.quiet && time.Since(began) < 10*q.quiet; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now, err := q.end()
		if err != nil {
			return err
		}
		if now != end || q.busy() {
			calm, end = time.Now(), now
		}
	}
	return nil
}

// Tasks implements [deadletter.Queue].
func (q *deadLetters) Tasks(context.Context) ([]deadletter.Task, error) {
	st, err := q.state()
	return st.Tasks, err
}

// Want implements [deadletter.Queue].
func (q *deadLetters) Want(ctx context.Context, task string, w deadletter.Wanted) error {
	return q.note(ctx, func(st *shelfState) error {
		st.Want(task, w)
		return nil
	})
}

// Holder implements [deadletter.Queue]. Who has died has it no longer.
func (q *deadLetters) Holder(ctx context.Context) (h deadletter.Holder, ok bool, err error) {
	err = q.alone(ctx, func() error {
		free, err := tryLock(q.path(claimLock))
		if free != nil {
			return free.Close()
		}
		if err != nil {
			return err
		}
		st, err := q.state()
		h, ok = st.Claim.Holder(), err == nil
		return err
	})
	return h, ok, err
}

// Oldest implements [deadletter.Dater]: when the first that is not settled was taken.
func (q *deadLetters) Oldest(ctx context.Context) (at time.Time, ok bool, err error) {
	s, err := q.scan(ctx, deadletter.Start)
	if err != nil {
		return at, false, err
	}
	defer s.Close()
	m, err := s.Next(ctx)
	if errors.Is(err, io.EOF) {
		return at, false, nil
	}
	if err != nil {
		return at, false, err
	}
	return m.Time, true, nil
}

// Keeps implements [deadletter.Keeper]: what is on the shelf stays there.
func (q *deadLetters) Keeps(context.Context) (time.Duration, error) { return 0, nil }

// Drops implements [deadletter.Dropper]: nothing is dropped.
func (q *deadLetters) Drops(context.Context) (string, error) { return "", nil }

// Close implements [deadletter.Queue]. No more letters are taken, and a claim that was
// not released is lost.
func (q *deadLetters) Close() error {
	q.taking.Lock()
	defer q.taking.Unlock()
	q.mu.Lock()
	in, claims := q.intake, q.claims
	q.intake, q.claims, q.closed = nil, nil, true
	q.mu.Unlock()
	var errs []error
	if in != nil {
		errs = append(errs, in.close())
	}
	for c := range claims {
		errs = append(errs, c.held.Close())
	}
	return errors.Join(errs...)
}

var (
	_ deadletter.Dater   = (*deadLetters)(nil)
	_ deadletter.Keeper  = (*deadLetters)(nil)
	_ deadletter.Dropper = (*deadLetters)(nil)
)
