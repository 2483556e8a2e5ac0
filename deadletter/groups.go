package deadletter

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// DefaultMaxGroups bounds the causes that [Groups] separates.
const DefaultMaxGroups = 1000

// Group describes the dead letters of one cause.
type Group struct {
	// Fingerprint identifies the cause, see [Fingerprint]. It is empty for the group of all causes
	// beyond the bound.
	Fingerprint string
	// Count is the number of messages.
	Count int64
	// FirstSeen is the time of the earliest first failure, LastSeen that of the latest failure.
	FirstSeen, LastSeen time.Time
	// Attempts is the total number of attempts.
	Attempts int64
	// Keys is the share of the DLQ's distinct keys that are in the group, from 0 to 1. 0 means that no message has a key. It is
	// an estimate, a few per cent off, if there are more than 256 keys.
	Keys float64
	// Retried is the longest time from the first failure of a message to its last one, since it was last replayed.
	Retried time.Duration
	// Replays is the least number of replays of a message that can be replayed, and -1 if there is none.
	Replays int
	// ErrorType, Error, Reason and Handler are those of the group's latest message. Example is the
	// position of that message.
	ErrorType, Error string
	Reason           redeliver.Reason
	Handler          string
	Example          Position

	keys distinct
}

// Summary describes the content of a DLQ.
type Summary struct {
	// Groups are the causes, the most frequent first.
	Groups []Group
	// Scanned is the number of messages that were read, Matched the number of those that match the filter.
	Scanned, Matched int64
	// Mismatched is the number of matching messages with a Mismatch.
	Mismatched int64
	// Oldest and Newest are the earliest and the latest Time of a matching message.
	Oldest, Newest time.Time
}

// Groups reads the whole DLQ and groups the messages that match a filter by cause. Its memory does
// not depend on the number of messages: it separates at most DefaultMaxGroups causes, and the
// others form one group without a fingerprint.
func Groups(ctx context.Context, q Queue, f Filter) (Summary, error) {
	if err := f.check(); err != nil {
		return Summary{}, err
	}
	scan, err := q.Scan(ctx, FromStart)
	if err != nil {
		return Summary{}, err
	}
	g := grouping{groups: make(map[string]*Group)}
	err = each(ctx, scan, func(m *Message) {
		g.sum.Scanned++
		if f.Match(m) {
			g.add(m)
		}
	})
	return g.done(), errors.Join(err, scan.Close())
}

// grouping builds a [Summary].
type grouping struct {
	sum    Summary
	groups map[string]*Group
	keys   distinct

	cause fingerprinted // of the previous message
	name  string
}

// fingerprinted is the input of a fingerprint.
type fingerprinted struct {
	errorType, error, handler, origin string
	reason                            redeliver.Reason
}

// fingerprint returns the fingerprint of a message. Most messages have the cause of the previous one.
func (g *grouping) fingerprint(m *Message) string {
	c := fingerprinted{m.State.ErrorType, m.State.Error, m.Handler, m.State.Origin, m.State.Reason}
	if g.name == "" || c != g.cause {
		g.cause, g.name = c, Fingerprint(m)
	}
	return g.name
}

func (g *grouping) add(m *Message) {
	s := &g.sum
	s.Matched++
	if m.Mismatch != "" {
		s.Mismatched++
	}
	s.Oldest, s.Newest = earlier(s.Oldest, m.Time), later(s.Newest, m.Time)
	name := g.fingerprint(m)
	if g.groups[name] == nil && len(g.groups) >= DefaultMaxGroups {
		name = ""
	}
	one := g.groups[name]
	if one == nil {
		one = &Group{Fingerprint: name, Replays: -1}
		g.groups[name] = one
	}
	one.add(m)
	if m.Key != nil {
		h := hash(m.Key)
		g.keys.add(h)
		one.keys.add(h)
	}
}

func (g *Group) add(m *Message) {
	g.Count++
	g.Attempts += int64(m.State.Attempts)
	if m.Mismatch == "" && (g.Replays < 0 || m.State.Replays < g.Replays) {
		g.Replays = m.State.Replays
	}
	at := m.Failed()
	first := m.State.FirstFailed
	if first.IsZero() {
		first = at
	}
	if from := later(first, m.State.Replayed); m.State.LastFailed.After(from) {
		g.Retried = max(g.Retried, m.State.LastFailed.Sub(from))
	}
	if g.Count == 1 || !at.Before(g.LastSeen) {
		g.Error, g.ErrorType, g.Reason, g.Handler, g.Example = m.State.Error, m.State.ErrorType, m.State.Reason, m.Handler, m.Position
	}
	g.FirstSeen, g.LastSeen = earlier(g.FirstSeen, first), later(g.LastSeen, at)
}

func (g *grouping) done() Summary {
	all := g.keys.count()
	for _, one := range g.groups {
		if all > 0 {
			one.Keys = min(1, one.keys.count()/all)
		}
		g.sum.Groups = append(g.sum.Groups, *one)
	}
	slices.SortFunc(g.sum.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Fingerprint, y.Fingerprint))
	})
	return g.sum
}

func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

func later(x, y time.Time) time.Time {
	if y.After(x) {
		return y
	}
	return x
}
