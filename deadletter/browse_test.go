package deadletter_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// failingDLQ is a fakeDLQ whose scans fail.
type failingDLQ struct {
	*fakeDLQ
	scanErr, nextErr, closeErr error
	after                      int // Next fails after so many messages
}

func (d *failingDLQ) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	scan, err := d.fakeDLQ.Scan(ctx, from)
	return &failingScan{Scan: scan, d: d}, errors.Join(err, d.scanErr)
}

type failingScan struct {
	deadletter.Scan
	d    *failingDLQ
	read int
}

func (s *failingScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if s.d.nextErr != nil && s.read == s.d.after {
		return nil, s.d.nextErr
	}
	s.read++
	return s.Scan.Next(ctx, want)
}

func (s *failingScan) Close() error { return errors.Join(s.Scan.Close(), s.d.closeErr) }

func TestBrowseYieldsAnErrorOnceAndLast(t *testing.T) {
	down := errors.New("the broker is down")
	for _, c := range []struct {
		name         string
		dlq          failingDLQ
		filter       deadletter.Filter
		want, closed int
	}{
		{"the filter is wrong", failingDLQ{}, deadletter.Filter{BodyText: string(make([]byte, 2_000))}, 0, 0},
		{"the scan does not begin", failingDLQ{scanErr: down}, deadletter.Filter{}, 0, 0},
		{"a read fails", failingDLQ{nextErr: down, after: 2}, deadletter.Filter{}, 2, 1},
		{"the scan does not close", failingDLQ{closeErr: down}, deadletter.Filter{}, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.dlq.fakeDLQ = newFakeDLQ(3)
			all := deadletter.Browse(t.Context(), &c.dlq, c.filter)
			for loop := 1; loop <= 2; loop++ {
				var ids []string
				var failed []error
				for m, err := range all {
					switch {
					case (m == nil) != (err != nil):
						t.Fatalf("got the message %v with the error %v", m, err)
					case err != nil:
						failed = append(failed, err)
					case len(failed) > 0:
						t.Errorf("%s came after the error %v", m.ID, failed)
					default:
						ids = append(ids, m.ID)
					}
				}
				if len(failed) != 1 || c.filter.BodyText == "" && !errors.Is(failed[0], down) {
					t.Errorf("loop %d: the errors are %v, want one", loop, failed)
				}
				if want := c.dlq.ids()[:c.want]; !slices.Equal(ids, want) {
					t.Errorf("loop %d: the messages are %q, want %q", loop, ids, want)
				}
				if c.dlq.closed != loop*c.closed {
					t.Errorf("%d scans are closed after loop %d, want %d", c.dlq.closed, loop, loop*c.closed)
				}
			}
		})
	}
}

func TestALoopThatEndsClosesItsScan(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func() (stop bool)
		dlq  failingDLQ
	}{
		{"by break", func() bool { return true }, failingDLQ{}},
		{"by break, and the scan does not close", func() bool { return true }, failingDLQ{closeErr: errors.New("the broker is down")}},
		{"by panic", func() bool { panic("a bug in the loop") }, failingDLQ{}},
		{"after the last message", func() bool { return false }, failingDLQ{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.dlq.fakeDLQ = newFakeDLQ(3)
			func() {
				defer func() { _ = recover() }()
				for m, err := range deadletter.BrowseTail(t.Context(), &c.dlq, deadletter.Filter{}) {
					if err != nil {
						t.Fatal(err)
					}
					if c.dlq.closed > 0 {
						t.Errorf("the scan is closed while the loop has %s", m.ID)
					}
					if c.end() {
						break
					}
				}
			}()
			if c.dlq.closed != 1 {
				t.Errorf("%d scans are closed, want 1", c.dlq.closed)
			}
		})
	}
}
