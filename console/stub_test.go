package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// stub is a DLQ with any number of messages and no broker. It can be unavailable, costly to read, or large.
type stub struct {
	info deadletter.Info
	n    int64
	make func(i int64) *deadletter.Message
	slow time.Duration // how long a read takes
	gate chan struct{} // if set, blocks counts until it is closed
	tail int64         // how many messages a scan from Tail reads; 0 means all

	mu      sync.Mutex
	err     error
	scanErr error
	scans   int
	tasks   []deadletter.Task
	waiting []Level
	keeps   time.Duration
}

func newStub(name string, n int64) *stub {
	return &stub{
		info: deadletter.Info{Broker: "stub", DLQ: name, Origin: "orders", Group: "billing", ReplayTo: name + ".back", ReadEffect: "nothing"}, n: n,
		make: func(i int64) *deadletter.Message {
			m := &deadletter.Message{
				Position: deadletter.Position(fmt.Sprint(i)), ID: fmt.Sprintf("id-%d", i), Time: time.Now().Add(-time.Duration(i) * time.Second),
				Key: fmt.Appendf(nil, "key-%d", i), Body: fmt.Appendf(nil, `{"n":%d}`, i),
			}
			m.State = redeliver.State{ID: m.ID, Attempts: 3, Reason: redeliver.ReasonExhausted, Error: "bank is closed", ErrorType: "*bank.Error", LastFailed: m.Time}
			return m
		},
	}
}

var errSilent = errors.New("dial tcp amqp://user:secret@10.0.0.7: connection refused")

func (s *stub) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stub) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *stub) scanned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scans
}

func (s *stub) Info() deadletter.Info                                     { return s.info }
func (s *stub) Tasks(context.Context) ([]deadletter.Task, error)          { return s.tasks, s.trouble() }
func (s *stub) Waiting(context.Context) ([]Level, error)                  { return s.waiting, s.trouble() }
func (s *stub) Retention(context.Context) (time.Duration, error)          { return s.keeps, s.trouble() }
func (s *stub) Oldest(context.Context) (at time.Time, ok bool, err error) { return at, false, nil }
func (s *stub) DropLimit(context.Context) (string, error)                 { return "", nil }
func (s *stub) Request(context.Context, string, deadletter.Request) error { return s.trouble() }
func (s *stub) Close() error                                              { return nil }

func (s *stub) Count(ctx context.Context) (int64, bool, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return 0, false, ctx.Err()
		}
	}
	return s.n, true, s.trouble()
}

func (s *stub) Holder(context.Context) (h deadletter.Holder, ok bool, err error) {
	return h, false, s.trouble()
}

func (s *stub) Claim(context.Context, deadletter.Holder) (deadletter.Claim, error) {
	return nil, &deadletter.HeldError{DLQ: s.info.DLQ, Holder: deadletter.Holder{Who: "bob@ops", Task: "t-1", Since: time.Now()}}
}

func (s *stub) Scan(_ context.Context, from deadletter.From) (deadletter.Scan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scans++
	scan := &stubScan{s: s}
	if from == deadletter.FromTail && s.tail > 0 {
		scan.at = s.n - s.tail
	}
	return scan, cmp.Or(s.err, s.scanErr)
}

type stubScan struct {
	s  *stub
	at int64
}

func (c *stubScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if c.s.slow > 0 && c.at == 0 {
		<-time.After(c.s.slow)
	}
	if c.at == c.s.n {
		return nil, io.EOF
	}
	c.at++
	m := c.s.make(c.at - 1)
	if want != nil && !want(m) {
		return nil, nil //nolint:nilnil // see Next
	}
	return m, nil
}

func (c *stubScan) Close() error { return nil }
