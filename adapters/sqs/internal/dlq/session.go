package dlq

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

const (
	receiveWaitTime  = time.Second // above 0, so that SQS asks all its servers
	maxEmptyReceives = 3           // empty receives while SQS reports messages
	// clockSkew is the assumed clock difference between SQS's hosts. A message that arrived this soon after a scan
	// began counts as older.
	clockSkew  = 500 * time.Millisecond
	skewWindow = clockSkew + 2*time.Second

	openedKey = "opened" // the state's key that is written to learn the time by SQS's clock
)

// session implements [driver.Session].
type session struct {
	*driver.Leases
	q *Queue

	beganAt       time.Time       // by SQS's clock, when the first reader was opened; else zero
	startedAt     time.Time       // by the local clock
	replayedEarly map[string]bool // ids that were replayed soon after startedAt

	mu   sync.Mutex
	held map[string]*heldMessage // by MessageId

	extendErr error // of the last try to keep them hidden
}

// Write implements [driver.Session].
func (s *session) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) []error {
	queue, compose := s.q.Main, s.composeReplay
	if to == driver.DestinationDLQ {
		queue, compose = s.q.DLQ, s.composeImport
	}
	timeout := s.q.SendTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	sender := api.NewSender(queue, api.PublishLinger)
	errs := sender.SendAll(ctx, len(msgs), func(i int) (wire.Outgoing, error) { return compose(msgs[i]) })
	for i, err := range errs {
		if err == nil && to == driver.DestinationGroup && time.Since(s.startedAt) < skewWindow {
			s.replayedEarly[msgs[i].ID] = true // when it comes back, a reader could take it for an old message
		}
	}
	return errs
}

func (s *session) composeReplay(m *deadletter.Message) (wire.Outgoing, error) {
	st := driver.ReplayState(m, s.q.info)
	rec := recordFrom(m, m.Headers)
	rec.Keys = s.q.Keys
	o, ok := rec.WaitingCopy(&st, s.q.Main.MaxSize)
	if !ok {
		return o, fmt.Errorf("%w: its body and attributes leave no room for redeliver's state in the %d bytes of %s", driver.ErrRefused, s.q.Main.MaxSize, s.q.Main.Name)
	}
	o.DedupID = wire.ReplayDedupID(rec, &st)
	return o, nil
}

// composeImport composes a dead letter. SQS's own properties cannot be written, so redeliver's state keeps them.
func (s *session) composeImport(m *deadletter.Message) (wire.Outgoing, error) {
	if m.Writer != deadletter.WriterRedeliver && m.Writer != deadletter.WriterSQS {
		rec := recordFrom(m, slices.Concat(m.Headers, m.Foreign))
		o := rec.PlainCopy()
		o.DedupID = importDedupID()
		return o, nil
	}
	rec := recordFrom(m, m.Headers)
	rec.Keys = s.q.Keys
	o := rec.DeadCopy(&m.State, s.q.DLQ.MaxSize)
	o.DedupID = importDedupID()
	return o, nil
}

// importDedupID returns a new deduplication id. The parts of a large message have one id, and so may messages of one producer.
func importDedupID() string { return "import-" + rand.Text() }

// Remove implements [driver.Session].
func (s *session) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		at, ok := m.Native.(*deadRecord)
		if !ok {
			return fmt.Errorf("sqs: message %s at %s was read by another adapter (%T)", m.ID, m.Position, m.Native)
		}
		ids[i] = at.rec.CopyID
	}
	if len(entries) > 0 {
		if err := s.q.Append(ctx, entries...); err != nil {
			return err
		}
	}
	return s.deleteMessages(ctx, ids)
}

// Open implements [driver.Session]. It takes the time by SQS's clock from a message that it has just written.
func (s *session) Open(ctx context.Context, _ deadletter.From) (driver.Reader, error) {
	if s.beganAt.IsZero() {
		s.startedAt, s.replayedEarly = time.Now(), make(map[string]bool)
		err := s.q.Append(ctx, driver.Entry{Key: openedKey, Value: []byte("true")})
		if err != nil {
			return nil, err
		}
		if _, s.beganAt, err = s.q.updateState(ctx, nil); err != nil {
			return nil, err
		}
	}
	return &reader{s: s}, nil
}

// reader reads the messages that SQS got before the session began to read. It implements [driver.Reader].
type reader struct {
	s   *session
	buf []types.Message // received and not yet read
}

// Next implements [driver.Reader].
func (r *reader) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	for empty := 0; ; {
		for len(r.buf) > 0 {
			m := r.buf[0]
			r.buf = r.buf[1:]
			at := wire.SentAt(&m) // before readMessage restores the first delivery's attributes
			dead := r.s.q.readMessage(&m)
			switch {
			case r.s.isLater(dead, at):
			case !want(dead):
				return nil, nil //nolint:nilnil // see Next
			default:
				return dead, nil
			}
		}
		var err error
		if r.buf, err = r.s.receiveMessages(ctx); err == nil && len(r.buf) == 0 {
			empty++
			err = r.s.endOfQueue(ctx, empty)
		}
		if err != nil {
			return nil, err
		}
	}
}

// isLater reports whether a message came after the session began to read.
func (s *session) isLater(m *deadletter.Message, at time.Time) bool {
	again := m.State.Replays > 0 && s.replayedEarly[m.ID] && !at.Before(s.beganAt.Add(-clockSkew))
	return again || !at.Before(s.beganAt.Add(clockSkew))
}

// endOfQueue returns why a receive was empty: io.EOF or deadletter.ErrBlocked. It returns nil if SQS reports more
// messages.
func (s *session) endOfQueue(ctx context.Context, empty int) error {
	counts, err := s.q.DLQ.Count(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case counts.Visible > 0 && s.q.DLQ.FIFO && len(s.held) > 0:
		return deadletter.ErrBlocked
	case counts.Visible > 0 && empty < maxEmptyReceives:
		return nil
	default:
		return io.EOF
	}
}

// Close implements [driver.Reader].
func (r *reader) Close(ctx context.Context) error {
	if r.s.Check() != nil {
		return nil //nolint:nilerr // another session has the messages
	}
	return r.s.releaseHeld(ctx)
}
