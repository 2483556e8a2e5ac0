package deadletter

import (
	"context"
	"io"
	"iter"
)

// canLocate reports whether a purge needs only the positions of the messages that match the filter.
func (f *Filter) canLocate() bool {
	others := *f
	others.Positions = nil
	return others.All()
}

// locate finds the messages that match a filter without reading them. It finds none if q, a [Queue] or a [Claim], cannot, or if the
// filter needs more than positions.
func locate(ctx context.Context, q any, f *Filter) (Located, error) {
	l, ok := q.(Locator)
	if !ok || !f.canLocate() {
		return Located{}, nil
	}
	at := f.Positions
	if len(at) == 0 {
		at = nil
	}
	return l.Locate(ctx, at)
}

// locatedScan is a [Scan] of messages that were not read.
type locatedScan struct {
	next func() (*Message, bool)
	stop func()
}

func newLocatedScan(messages iter.Seq[*Message]) *locatedScan {
	next, stop := iter.Pull(messages)
	return &locatedScan{next, stop}
}

// Next implements [Scan].
func (s *locatedScan) Next(ctx context.Context, want func(*Message) bool) (*Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m, ok := s.next()
	switch {
	case !ok:
		return nil, io.EOF
	case want != nil && !want(m):
		return nil, nil //nolint:nilnil // as the interface defines it
	default:
		return m, nil
	}
}

// Close implements [Scan].
func (s *locatedScan) Close() error {
	s.stop()
	return nil
}
