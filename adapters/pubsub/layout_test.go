package pubsub

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/limits"
)

func TestLadderStaysBelowMaxUnacked(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, c := range []struct {
		levels  []time.Duration
		unacked time.Duration
		want    delayqueue.Ladder
	}{
		{[]time.Duration{s, m, h}, NoLimit, delayqueue.Ladder{s, m, h}},
		{[]time.Duration{s, m, h}, 3 * h, delayqueue.Ladder{s, m, h}},
		{[]time.Duration{s, m, h}, 90 * s, delayqueue.Ladder{s, 30 * s}},
		{[]time.Duration{s, m, h}, 3 * m, delayqueue.Ladder{s, m}},
		{[]time.Duration{h}, 30 * m, delayqueue.Ladder{10 * m}},
		{[]time.Duration{h}, 1, delayqueue.Ladder{time.Millisecond}},
	} {
		if got := newLadder(redeliver.Policy{Levels: c.levels}, c.unacked); !slices.Equal(got, c.want) {
			t.Errorf("levels %v, %s unacked: %v, want %v", c.levels, c.unacked, got, c.want)
		}
	}
}

// A message never leaves before it is due, its remaining time shrinks with every hop, and it stays on no delay topic
// for longer than MaxUnacked.
func TestNextTopicIsNeverEarlyAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unacked := time.Duration(rapid.Int64Range(int64(10*time.Millisecond), int64(100*time.Hour)).Draw(t, "unacked"))
		levels := rapid.SliceOfNDistinct(rapid.Int64Range(1, int64(10*time.Hour/time.Millisecond)), 1, delayTopics, rapid.ID[int64]).Draw(t, "levels")
		slices.Sort(levels)
		policy := redeliver.Policy{}
		for _, ms := range levels {
			policy.Levels = append(policy.Levels, time.Duration(ms)*time.Millisecond)
		}
		cfg := Config{Group: "g", MaxUnacked: unacked, Policy: policy}
		l, err := newLayout(&cfg, "orders")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		due := now.Add(time.Duration(rapid.Int64Range(0, int64(100*l.ladder[len(l.ladder)-1])).Draw(t, "wait")))
		due = limits.CeilMilli(due)
		for range 1000 { // a ladder with wide gaps may need more
			where, until := l.nextTopic(due, now)
			if where == l.retry {
				if now.Before(due) {
					t.Fatalf("leaves %s early", due.Sub(now))
				}
				return
			}
			nth := slices.Index(l.delays[:], where)
			if nth < 0 || !until.After(now) || until.After(due) || until.Sub(now) > l.maxStay(nth) {
				t.Fatalf("on %s from %s until %s, due %s, may stay %s", where, now, until, due, l.maxStay(nth))
			}
			if until.Sub(now) > unacked*2/3+2*time.Millisecond {
				t.Fatalf("unacked for %s of %s", until.Sub(now), unacked)
			}
			now = until
		}
	})
}
