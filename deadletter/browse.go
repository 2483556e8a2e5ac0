package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Browse yields the dead letters that a filter takes, in the order in which the
// broker has them, until yield returns false, limit are found (0: no limit), the
// end of the DLQ as it was at the call is reached, or ctx ends. What looking costs
// stands in [Info.Look].
func Browse(ctx context.Context, q Queue, f Filter, limit int, yield func(*Message) bool) error {
	if err := f.check(); err != nil {
		return err
	}
	scan, err := q.Scan(ctx, Start)
	if err != nil {
		return err
	}
	n := 0
	err = each(ctx, scan, func(m *Message) error {
		if !f.Match(m) {
			return nil
		}
		n++
		if !yield(m) || n == limit {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return errors.Join(err, scan.Close())
}

// each calls do for what a scan has up to its present end.
func each(ctx context.Context, scan Scan, do func(*Message) error) error {
	for {
		m, err := scan.Next(ctx)
		if errors.Is(err, io.EOF) || errors.Is(err, ErrBehind) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(m); err != nil {
			return err
		}
	}
}

// Find returns the dead letter at a position, or [ErrNotFound].
func Find(ctx context.Context, q Queue, at Position) (*Message, error) {
	var found *Message
	err := Browse(ctx, q, Filter{Positions: []Position{at}}, 1, func(m *Message) bool {
		found = m
		return false
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("%w at %s in %s: it was settled or removed, or never there", ErrNotFound, at, q.Info().DLQ)
	}
	return found, nil
}
