package limits_test

import (
	"testing"
	"unicode/utf8"

	"github.com/redeliver/redeliver/internal/limits"
)

func TestCutMiddleKeepsTheEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"short", 10, "short"}, {"POST https://bank: connection refused", 24, "POST ht…ection refused"}, {"ääääääää", 9, "ä…ää"}, {"long", 2, "lo"}, {"a\xffb", 9, "a?b"}} {
		if got := limits.CutMiddle(c.in, c.n); len(got) > c.n || !utf8.ValidString(got) || got != c.want {
			t.Errorf("%q at %d is %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
