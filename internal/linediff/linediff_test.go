package linediff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/linediff"
)

func TestADiffNamesTheLinesThatDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("same\n", 20)
	got := linediff.Compare(long+"a\nb\nc\n"+long, long+"a\nB\nc\nd\n"+long)
	var text []string
	for _, l := range got {
		text = append(text, l.Sign+l.Text)
	}
	want := []string{"…", "same", "same", "a", "-b", "+B", "c", "+d", "same", "same", "same", "…"}
	if !slices.Equal(text[:1], want[:1]) || !strings.Contains(strings.Join(text, "|"), "-b|+B|c|+d|same") || text[len(text)-1] != "…" || len(text) > 14 {
		t.Errorf("the diff is %q", text)
	}
	if n := len(linediff.Compare(strings.Repeat("a\n", 100_000), strings.Repeat("b\n", 100_000))); n > 401 {
		t.Errorf("%d lines are shown", n)
	}
}
