package examples_test

import (
	"regexp"
	"strings"
	"testing"
)

// Every document of a batch ends up in the index or in the DLQ. One is retried and one is rejected, which delays no
// others.
func TestBatchExample(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "batch")
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	text := strings.Join(lines, "\n")
	for _, want := range []string{"a batch of 10\n", "d-3: retry in 1s\n", "d-7: rejected: no such language\n", `24 indexed, 1 in documents\.search\.dlq$`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("it does not say %q", want)
		}
	}
	if n := strings.Count(text, "a batch of "); n > 5 {
		t.Errorf("%d batches for 25 documents and a retry", n)
	}
	show(t, lines)
}
