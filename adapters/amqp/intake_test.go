package amqp

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
)

func TestFitWindow(t *testing.T) {
	const limit = 1000
	for name, row := range map[string]struct{ window, most, n, bytes, want int }{
		"nothing yet":                     {16, 200, 0, 0, 16},
		"half of it":                      {16, 200, 8, 80, 16},
		"a full window of small messages": {16, 200, 16, 160, 32},
		"a full window of empty messages": {16, 200, 16, 0, 32},
		"at most the maximum":             {150, 200, 150, 150, 200},
		"the most":                        {200, 200, 200, 200, 200},
		"doubling would exceed the limit": {16, 200, 16, 800, 16},
		"too large":                       {16, 200, 16, 1600, 7},
		"smaller already":                 {7, 200, 16, 1600, 7},
		"each too large":                  {16, 200, 2, 4000, 1},
		"one too large":                   {1, 200, 1, 4000, 1},
	} {
		if got := fitWindow(row.window, row.most, row.n, row.bytes, limit); got != row.want {
			t.Errorf("%s: %d, want %d", name, got, row.want)
		}
	}
}

// With messages of one size the window converges, and stays within the limit unless a single message exceeds it.
func TestWindowConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 1<<20).Draw(t, "size")
		limit := rapid.IntRange(1, 64<<20).Draw(t, "limit")
		most := rapid.IntRange(1, maxPrefetch).Draw(t, "most")
		window := queueConfig{kind: layout.RetryQueue, prefetch: most}.firstWindow(limit)
		for range 20 {
			window = fitWindow(window, most, window, window*size, limit)
		}
		if next := fitWindow(window, most, window, window*size, limit); next != window {
			t.Fatalf("continues from %d to %d", window, next)
		}
		if window < 1 || window > most || window > 1 && window*size > limit {
			t.Fatalf("%d messages of %d bytes, the limit is %d bytes and %d messages", window, size, limit, most)
		}
		if room := 4 * window * size; window < most && room < limit {
			t.Fatalf("only %d messages of %d bytes, the limit is %d bytes", window, size, limit)
		}
	})
}
