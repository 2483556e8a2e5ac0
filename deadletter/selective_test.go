package deadletter_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// selectiveDLQ is a fakeDLQ whose scans have room for one message, and keep nothing of a message that was not wanted.
type selectiveDLQ struct {
	*fakeDLQ
	copied int // number of messages that were wanted
}

func (s *selectiveDLQ) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	scan, err := s.fakeDLQ.Scan(ctx, from)
	return &selectiveScan{Scan: scan, s: s}, err
}

func (s *selectiveDLQ) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	c, err := s.fakeDLQ.Claim(ctx, h)
	return &selectiveClaim{c, s}, err
}

type selectiveClaim struct {
	deadletter.Claim
	s *selectiveDLQ
}

func (c *selectiveClaim) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	scan, err := c.Claim.Scan(ctx, from)
	return &selectiveScan{Scan: scan, s: c.s}, err
}

type selectiveScan struct {
	deadletter.Scan
	s    *selectiveDLQ
	room deadletter.Message
}

func (s *selectiveScan) Next(ctx context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	m, err := s.Scan.Next(ctx, nil)
	if err != nil {
		return nil, err
	}
	s.room = *m
	s.room.Key, s.room.Body = bytes.Clone(m.Key), bytes.Clone(m.Body)
	if want(&s.room) {
		s.s.copied++
		return m, nil
	}
	for _, b := range [][]byte{s.room.Key, s.room.Body} {
		for i := range b {
			b[i] = 'x'
		}
	}
	s.room = deadletter.Message{ID: "gone"}
	return nil, nil //nolint:nilnil // see Next
}

// twoCauses returns a fakeDLQ with dead letters of two causes. Every tenth has the second cause.
func twoCauses(n int) *fakeDLQ {
	h := newFakeDLQ(n)
	for i, m := range h.messages {
		m.Key, m.Body = fmt.Appendf(nil, "key-%d", i%7), []byte("body")
		m.State = redeliver.State{Error: "card declined", ErrorType: "*bank.Error", Attempts: 4, LastFailed: m.Time}
		if i%10 == 0 {
			m.State.Error = "no such card"
		}
	}
	return h
}

// Every function that reads a DLQ returns the same for a selectiveDLQ as for a fakeDLQ, and only wanted messages are
// copied.
func TestSelectiveScansReturnTheSame(t *testing.T) {
	const n = 200
	rare := deadletter.Filter{ErrorText: "NO SUCH"}
	for _, c := range []struct {
		name   string
		do     func(q deadletter.Queue) any
		copied int
	}{
		{"groups", func(q deadletter.Queue) any {
			sum, err := deadletter.Groups(t.Context(), q, deadletter.Filter{})
			return fmt.Sprint(sum.Scanned, sum.Matched, sum.Oldest.Unix(), sum.Newest.Unix(), len(sum.Groups), sum.Groups[0].Error, sum.Groups[0].Count, sum.Groups[0].Keys,
				sum.Groups[0].Example, sum.Groups[1].Error, sum.Groups[1].Count, sum.Groups[1].ErrorType, err)
		}, 0},
		{"a dry run", func(q deadletter.Queue) any {
			f, err := deadletter.DryRun(t.Context(), q, deadletter.ReplayOptions{Filter: rare})
			return fmt.Sprint(f, err)
		}, 0},
		{"a browse", func(q deadletter.Queue) any {
			var seen []string
			for m, err := range deadletter.Browse(t.Context(), q, rare) {
				if err != nil {
					return err
				}
				if seen = append(seen, fmt.Sprint(m.ID, m.Position, string(m.Key), string(m.Body), m.State.Error)); len(seen) == 5 {
					break
				}
			}
			return fmt.Sprint(seen)
		}, 5},
		{"a replay", func(q deadletter.Queue) any {
			task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Filter: rare, Window: 3})
			return fmt.Sprint(task.Status, task.Counts, err)
		}, n / 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, selective := twoCauses(n), &selectiveDLQ{fakeDLQ: twoCauses(n)}
			at := time.Now().Add(-time.Hour).Truncate(time.Second)
			for i := range n { // the DLQs were filled at different times
				plain.messages[i].Time, selective.messages[i].Time = at, at
				plain.messages[i].State.LastFailed, selective.messages[i].State.LastFailed = at, at
			}
			want, got := c.do(plain), c.do(selective)
			if got != want {
				t.Errorf("with a selectiveDLQ it is\n%v\nwant\n%v", got, want)
			}
			if !slices.Equal(selective.sent, plain.sent) || !slices.Equal(selective.ids(), plain.ids()) {
				t.Errorf("the selectiveDLQ sent %q and the fakeDLQ %q", selective.sent, plain.sent)
			}
			if selective.copied != c.copied {
				t.Errorf("%d messages were copied, want %d", selective.copied, c.copied)
			}
		})
	}
}
