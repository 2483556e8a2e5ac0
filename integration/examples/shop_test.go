package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// checkShop runs a demonstration twice. Every order is charged or in the DLQ, which has the poison message with its
// reason. If a run was killed, the next one finishes its orders. between checks the broker after the first run.
func checkShop(t *testing.T, name, broker, dlq string, between func()) {
	t.Helper()
	run := func() *program { return start(t, nil, name, "--broker", broker) }
	p := run()
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	checkSummary(t, summary(lines), map[string]int{
		"orders placed": 11, "charged on attempt 1": 6, "charged on attempt 2": 1, "charged on attempt 3": 1,
		"in the DLQ, permanent": 2, "in the DLQ, exhausted": 1, "still waiting": 0,
	})
	_, letters, _ := strings.Cut(strings.Join(lines, "\n"), dlq)
	for _, letter := range []string{`-xx +permanent +after attempt 1: invalid character`, `-08 +exhausted +after attempt 4: no answer`} {
		if !regexp.MustCompile(letter).MatchString(letters) {
			t.Errorf("the DLQ shows no %q", letter)
		}
	}
	show(t, lines)
	between()

	p = run()
	var left string // the id of an order that waits when the process is killed
	for left == "" {
		line, ok := p.next()
		if !ok {
			t.Fatal("it ended unexpectedly")
		}
		if strings.Contains(line, "-08  retry in 2s") {
			left = strings.Fields(line)[1]
		}
	}
	p.signal(os.Kill)
	p = run()
	lines = p.rest()
	if text := strings.Join(lines, "\n"); p.status() != 0 || !strings.Contains(text, left+"  DLQ ") {
		t.Errorf("exit status %d, %s is in the DLQ: %t", p.status(), left, strings.Contains(text, left+"  DLQ "))
	}
	if got := summary(lines); got["still waiting"] != 0 {
		t.Errorf("summary %v: want none waiting", got)
	}
	show(t, lines)
}

// refusal is the expected result of wrong arguments.
type refusal struct {
	args   []string
	status int
	say    string
}

// checkRefusals runs a program with wrong arguments. Its errors must not contain a password.
func checkRefusals(t *testing.T, name string, all []refusal) {
	t.Helper()
	for _, c := range all {
		p := start(t, nil, name, c.args...)
		if status, said := p.status(), p.errors(); status != c.status || !strings.Contains(said, c.say) || strings.Contains(said, "secret") {
			t.Errorf("%v: exit status %d, stderr %q; want %d and %q", c.args, status, said, c.status, c.say)
		}
	}
}
