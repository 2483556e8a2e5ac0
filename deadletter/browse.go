package deadletter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// Browse returns the dead letters that match a filter, in the broker's order, up to the end that the
// DLQ had when the loop began. An error, with a nil message, ends the sequence; it may also come after
// the last message. Each loop over the sequence reads the DLQ again, and stops reading when it ends:
// break it after as many messages as you need. A message stays valid after its iteration.
// [Info.ReadEffect] describes the effect of reading.
func Browse(ctx context.Context, q Queue, f Filter) iter.Seq2[*Message, error] {
	return browseFrom(ctx, q, FromStart, f)
}

// BrowseTail is [Browse] for the latest messages only: it begins at [FromTail].
func BrowseTail(ctx context.Context, q Queue, f Filter) iter.Seq2[*Message, error] {
	return browseFrom(ctx, q, FromTail, f)
}

func browseFrom(ctx context.Context, q Queue, from From, f Filter) iter.Seq2[*Message, error] {
	return func(yield func(*Message, error) bool) {
		if err := f.check(); err != nil {
			yield(nil, err)
			return
		}
		scan, err := q.Scan(ctx, from)
		if err != nil {
			yield(nil, err)
			return
		}
		end := sync.OnceValue(scan.Close)
		defer func() { _ = end() }() // the body of the loop may panic
		more := true
		err = scanAll(ctx, scan, f.Match, func(m *Message) bool {
			more = yield(m, nil)
			return more
		})
		if err = errors.Join(err, end()); err != nil && more {
			yield(nil, err)
		}
	}
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
func Find(ctx context.Context, q Queue, at Position) (m *Message, err error) {
	err = fmt.Errorf("%w at %s in %s: it was settled or removed, or was never there", ErrNotFound, at, q.Info().DLQ)
	for m, err = range Browse(ctx, q, Filter{Positions: []Position{at}}) {
		break
	}
	return m, err
}
