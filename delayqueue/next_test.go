package delayqueue_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

func TestNext(t *testing.T) {
	l := delayqueue.Ladder{second, 5 * second, 30 * second, minute}
	const slack = 100 * ms
	for _, c := range []struct {
		remaining, slack, want time.Duration // want 0: held
	}{
		{95 * second, 0, minute},
		{minute, 0, minute},
		{minute - 1, 0, 30 * second},
		{minute - slack, slack, minute}, // decided just before the write
		{minute - slack - 1, slack, 30 * second},
		{5 * second, 0, 5 * second},
		{second, 0, second},
		{second - 1, 0, 0},
		{second - slack, slack, second},
		{second - slack - 1, slack, 0},
		{second - slack, 10 * second, second}, // slack is at most a tenth of the level
		{second - slack - 1, 10 * second, 0},
		{0, slack, 0},
		{-hour, slack, 0},
		{math.MinInt64, slack, 0},
		{redeliver.MaxWait, slack, minute},
		{math.MaxInt64, slack, minute}, // no overflow
	} {
		got, ok := l.Next(c.remaining, c.slack)
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("Next(%s, %s) = %s, %v; want %s", c.remaining, c.slack, got, ok, c.want)
		}
	}
	if level, ok := (delayqueue.Ladder)(nil).Next(hour, slack); ok {
		t.Errorf("no ladder has the level %s", level)
	}
}

func TestPath(t *testing.T) {
	l := delayqueue.Ladder{5 * second, 30 * second, minute}
	for _, c := range []struct {
		wait time.Duration
		want []time.Duration
	}{
		{95 * second, []time.Duration{minute, 30 * second, 5 * second}},
		{96 * second, []time.Duration{minute, 30 * second, 5 * second}},
		{2 * minute, []time.Duration{minute, minute}},
		{4 * second, nil},
		{-second, nil},
	} {
		if got := l.Path(c.wait); !slices.Equal(got, c.want) {
			t.Errorf("Path(%s) = %v, want %v", c.wait, got, c.want)
		}
	}
}

// ladders draws ladders whose longest wait has few enough hops to be listed.
func ladders(t *rapid.T) delayqueue.Ladder {
	l := delayqueue.Ladder(rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) time.Duration {
		return ms * time.Duration(rapid.Int64Range(1, int64(hour/ms)).Draw(t, "ms"))
	}), 1, 8, rapid.ID).Draw(t, "levels"))
	slices.Sort(l)
	return l
}

// The rest after the path is held, so it must be short. The path never takes longer than the wait.
func TestPathSpendsTheWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ladders(t)
		most := min(int64(redeliver.MaxWait), 10_000*int64(l[0]))
		d := time.Duration(rapid.Int64Range(-int64(hour), most).Draw(t, "wait"))
		var sum time.Duration
		path := l.Path(d)
		for _, level := range path {
			if !slices.Contains(l, level) {
				t.Fatalf("%s is not a level of %v", level, l)
			}
			sum += level
		}
		if rest := d - sum; rest >= l[0] || d >= 0 && rest < 0 {
			t.Fatalf("the path of %s on %v is %v: it leaves %s", d, l, path, rest)
		}
		if !slices.IsSortedFunc(path, func(a, b time.Duration) int { return int(b - a) }) {
			t.Fatalf("the path of %s on %v is %v: it must descend", d, l, path)
		}
	})
}

// Hops follow one another with a clock that advances between them, as for a real message.
func TestNextNeverOvershootsAndEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ladders(t)
		slack := time.Duration(rapid.Int64Range(0, int64(200*ms)).Draw(t, "slack"))
		left := redeliver.MaxWait
		if rapid.Bool().Draw(t, "short") {
			left = time.Duration(rapid.Int64Range(0, int64(10*hour)).Draw(t, "wait"))
		}
		late := time.Duration(rapid.Int64Range(0, int64(10*ms)).Draw(t, "late"))
		most := int64(left/l[0]) + 2
		for n := int64(0); ; n++ {
			level, ok := l.Next(left, slack)
			if !ok {
				break
			}
			if level > left+slack {
				t.Fatalf("%s on %v: level %s is longer than what remains and slack %s", left, l, level, slack)
			}
			if i := slices.IndexFunc(l, func(d time.Duration) bool { return d > level && d <= left }); i >= 0 {
				t.Fatalf("%s on %v: level %s, although %s fits", left, l, level, l[i])
			}
			if n > most {
				t.Fatalf("still hopping after %d hops", n)
			}
			left -= time.Duration(max(1, int64(left/level)/2)*int64(level)) + late // many equal hops at once, for a year of milliseconds
		}
		if left >= l[0] {
			t.Fatalf("%s is to be held, although %v", left, l)
		}
	})
}
