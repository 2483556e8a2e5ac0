package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redeliver/redeliver/internal/limits"
)

// Change changes a copy of a message before it is replayed, see [ReplayOptions.Change].
type Change func(ctx context.Context, m *Message) error

// MaxGrowth is how many bytes a Change may add to a body.
const MaxGrowth = 1 << 20

// Changed is a message before and after a Change.
type Changed struct{ Before, After *Message }

// Diff returns what differs.
func (c Changed) Diff() *Diff {
	diff := diffOf(c.Before, c.After)
	diff.Before, diff.After = c.Before.Body, c.After.Body
	return diff
}

// apply returns the copy of m that is sent, and whether it differs from m. After an error m must stay in the DLQ.
func (change Change) apply(ctx context.Context, m *Message) (copied *Message, changed bool, err error) {
	edited := *m
	edited.Key, edited.Body, edited.Headers = bytes.Clone(m.Key), bytes.Clone(m.Body), cloneHeaders(m.Headers)
	if err := change(ctx, &edited); err != nil {
		return nil, false, err
	}
	switch grown := len(edited.Body) - len(m.Body); {
	case (edited.Key == nil) != (m.Key == nil) || !bytes.Equal(edited.Key, m.Key):
		return nil, false, errors.New("the change has another key: a replay keeps the key, which decides about the partition and the order")
	case grown > MaxGrowth:
		return nil, false, fmt.Errorf("the change makes the body %d bytes larger: at most %d are allowed", grown, MaxGrowth)
	}
	if name := lockedChange(m.Headers, edited.Headers); name != "" {
		return nil, false, fmt.Errorf("the change has another header %s, which identifies the message", name)
	}
	copied = new(Message)
	*copied = *m // all else stays as it was, whatever the change did
	copied.Body, copied.Headers = edited.Body, edited.Headers
	return copied, !equalBytes(m.Body, copied.Body) || !slices.EqualFunc(m.Headers, copied.Headers, equalHeader), nil
}

func cloneHeaders(headers []Header) []Header {
	clone := slices.Clone(headers)
	for i := range clone {
		clone[i].Value = bytes.Clone(clone[i].Value)
	}
	return clone
}

func equalBytes(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }

func equalHeader(x, y Header) bool { return x.Name == y.Name && equalBytes(x.Value, y.Value) }

// lockedChange returns the name of a LockedHeader that differs, or "".
func lockedChange(before, after []Header) string {
	locked := func(headers []Header) (all []Header) {
		for _, h := range headers {
			if LockedHeader(h.Name) {
				all = append(all, h)
			}
		}
		return all
	}
	was, is := locked(before), locked(after)
	for i := range max(len(was), len(is)) {
		switch {
		case i >= len(is) || i < len(was) && !equalHeader(was[i], is[i]):
			return was[i].Name
		case i >= len(was):
			return is[i].Name
		}
	}
	return ""
}

// maxWhy bounds the reason of a refusal, in bytes.
const maxWhy = 512

// addChange calls the change of a replay for a message that would be replayed.
func (f *Forecast) addChange(ctx context.Context, m *Message, change Change) {
	copied, changed, err := change.apply(ctx, m)
	switch {
	case err != nil:
		f.Replay--
		f.refuse(m, limits.CutMiddle(err.Error(), maxWhy))
	case changed:
		f.Changed++
		if len(f.Changes) < maxChanges {
			f.Changes = append(f.Changes, Changed{m, copied})
		}
	}
}
