package commitmeta

import (
	"slices"
	"testing"
)

// If a set does not fit, the highest offsets are left out.
func TestASettlementSetIsBounded(t *testing.T) {
	t.Parallel()
	var everyThird, far Runs
	for i := range int64(20_000) {
		everyThird = append(everyThird, Run{3*i + 1, 3*i + 2})
		far = append(far, Run{1_000_000*i + 1, 1_000_000*i + 2})
	}
	for name, c := range map[string]struct {
		all      Runs
		minCount int // the number of offsets that must fit
		whole    bool
	}{
		"many runs, as bits":  {everyThird[:MaxSureSpan/3], MaxSureSpan / 3, true},
		"too many runs":       {everyThird, 1000, false},
		"one long run":        {Runs{{10, 10_000_000}}, 1, true},
		"far from each other": {far, 400, false},
		"none":                {nil, 0, true},
	} {
		text, n := writeSettled(c.all, 0, maxSettledText)
		read, ok := readSettled(text, 0)
		if whole := n == len(c.all); whole != c.whole || n != len(read) || len(text) > maxSettledText || !ok || len(read) < c.minCount || !slices.Equal(read, c.all[:len(read)]) {
			t.Errorf("%s: %d of %d are read from %d bytes, which have %d", name, len(read), len(c.all), len(text), n)
		}
	}
	for _, text := range []string{"x", "r!", "r_w", "bAQ=", "r____________________________"} {
		if read, ok := readSettled(text, 0); ok {
			t.Errorf("read %v from %q", read, text)
		}
	}
	if text, n := writeSettled(everyThird, 0, 10); len(text) > 10 || n == 0 || n == len(everyThird) {
		t.Errorf("wrote %q, %d runs, into 10 bytes", text, n)
	}
}
