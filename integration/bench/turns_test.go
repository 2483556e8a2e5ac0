package main

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The machine must treat each side alike: each is the first, and the last, of a round equally often.
func TestSidesTakeTurnsInBeingFirst(t *testing.T) {
	for _, sides := range []int{2, 3} {
		first, last := make([]int, sides), make([]int, sides)
		for n := range 2 * sides {
			order := orderOfTurn(n, sides)
			first[order[0]]++
			last[order[sides-1]]++
			if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2}[:sides]) {
				t.Errorf("%d sides, turn %d: %v", sides, n, order)
			}
		}
		for i := range sides {
			if first[i] != 2 || last[i] != 2 {
				t.Errorf("of %d sides %v are first and %v last", sides, first, last)
			}
		}
	}
}

func TestBoundsOfAMedian(t *testing.T) {
	ascending := func(n int) (v []float64) {
		for i := range n {
			v = append(v, float64(i+1))
		}
		return v
	}
	// Of a table of the sign test's bounds at 95 %.
	for _, c := range []struct{ n, low, high int }{{6, 1, 6}, {10, 2, 9}, {20, 6, 15}, {60, 22, 39}, {5000, 2431, 2570}} {
		if low, high := medianBounds(ascending(c.n)); int(low) != c.low || int(high) != c.high {
			t.Errorf("of %d: %g to %g; want %d to %d", c.n, low, high, c.low, c.high)
		}
	}
	missed, rng := 0, rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var v []float64
		for range 30 {
			v = append(v, rng.ExpFloat64())
		}
		slices.Sort(v)
		if low, high := medianBounds(v); low > 0.6931 || high < 0.6931 {
			missed++
		}
	}
	if missed < 20 || missed > 100 {
		t.Errorf("%d of 2,000 bounds are beside the median, of which 5 %% may be and 4.3 %% should", missed)
	}
}

func TestVerdictOfPairs(t *testing.T) {
	around := func(middle float64, n int) (v []float64) {
		for i := range n {
			v = append(v, middle+0.2*(float64(i)/float64(n-1)-0.5))
		}
		return v
	}
	for _, c := range []struct {
		runs    []float64
		verdict string
		text    string
	}{
		{around(1, 1001), verdictMet, "1.000x (95 %: 0.994 to 1.006)"},
		{around(1.05, 1001), verdictMissed, "1.050x (95 %: 1.044 to 1.056)"},
		{around(1, 11), verdictNotShown, "1.000x (95 %: 0.920 to 1.080)"},
		{around(1, 5), verdictNotShown, "1x (0.90 to 1.10)"},
		{[]float64{1, 1, 1}, verdictNotShown, "1x"},
	} {
		f := figure{Runs: c.runs, Target: atMost(1.02), Unit: "x", Paired: true}
		f.finish()
		if f.Verdict != c.verdict || f.text() != c.text {
			t.Errorf("%d pairs: %s, %s; want %s, %s", len(c.runs), f.text(), f.Verdict, c.text, c.verdict)
		}
	}
}

func TestWhatCallgrindCounts(t *testing.T) {
	const file = `events: Ir

fl=(1) a.go
fn=(7) example.com/adapters/kafka.(*lane).begins
12 30
+2 5
cfn=(8) example.com/delayqueue.(*Turn).Rest
calls=5 *
* 500
fn=(8)
3 40
fi=(2) b.go
* 2
fn=(9) example.com/adapters/kafka.(*lane).begins'2
4 1
fn=(10) main.main
1 22

totals: 100
`
	c, err := countedIn([]byte(file))
	if err != nil || len(c) != 3 || c["example.com/adapters/kafka.(*lane).begins"] != 36 || c["example.com/delayqueue.(*Turn).Rest"] != 42 || c["main.main"] != 22 {
		t.Errorf("%v, %v", c, err)
	}
	for name, want := range map[string]bool{"x/adapters/kafka.(*lane).begins": true, "x/delayqueue.(*Turn).Rest": true, "x/adapters/kafka.note.text": true, "x/adapters/kafka.(*lane).send": false, "x/adapters/kafka.(*entry).rest": true} {
		if counting.MatchString(name) != want {
			t.Errorf("%s counts crashes: %t", name, !want)
		}
	}
	if c, err := countedIn([]byte(strings.TrimSuffix(file, "totals: 100\n"))); err == nil {
		t.Errorf("a file that was cut short is read as %v", c)
	}
	if c, err := countedIn([]byte(strings.ReplaceAll(file, "calls=5 *\n", ""))); err == nil {
		t.Errorf("what was called counts twice in %v", c)
	}
}
