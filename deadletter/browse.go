package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Browse calls yield with the dead letters that match a filter, in the broker's order. It ends when
// yield returns false, after limit messages (0: no limit), at the end that the DLQ had at the call,
// or when ctx ends. [Info.ReadEffect] describes the effect of reading.
func Browse(ctx context.Context, q Queue, f Filter, limit int, yield func(*Message) bool) error {
	return browseFrom(ctx, q, FromStart, f, limit, yield)
}

// BrowseTail is [Browse] for the latest messages only: it begins at [Tail].
func BrowseTail(ctx context.Context, q Queue, f Filter, yield func(*Message) bool) error {
	return browseFrom(ctx, q, FromTail, f, 0, yield)
}

func browseFrom(ctx context.Context, q Queue, from From, f Filter, limit int, yield func(*Message) bool) error {
	if err := f.check(); err != nil {
		return err
	}
	scan, err := q.Scan(ctx, from)
	if err != nil {
		return err
	}
	n := 0
	err = scanAll(ctx, scan, f.Match, func(m *Message) bool {
		n++
		return yield(m) && n != limit
	})
	return errors.Join(err, scan.Close())
}

// scanAll calls yield with the messages of a scan that want accepts, until the present end, or until yield returns false.
func scanAll(ctx context.Context, scan Scan, want, yield func(*Message) bool) error {
	for {
		m, err := scan.Next(ctx, want)
		if errors.Is(err, io.EOF) || errors.Is(err, ErrBlocked) {
			return nil
		}
		if err != nil {
			return err
		}
		if m != nil && !yield(m) {
			return nil
		}
	}
}

// each calls do with every message of a scan up to its present end. do may keep only the strings of a message, see [Scan].
func each(ctx context.Context, scan Scan, do func(*Message)) error {
	want := func(m *Message) bool {
		do(m)
		return false
	}
	return scanAll(ctx, scan, want, nil)
}

// Find returns the dead letter at a position, or ErrNotFound.
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
		return nil, fmt.Errorf("%w at %s in %s: it was settled or removed, or was never there", ErrNotFound, at, q.Info().DLQ)
	}
	return found, nil
}
