package examples_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// home returns an environment in which the quickstart finds no data of earlier runs.
func home(t *testing.T) []string {
	dir := t.TempDir()
	return []string{"HOME=" + dir, "XDG_CACHE_HOME=" + dir, "REDELIVER_BROKER="}
}

var counted = regexp.MustCompile(`^ +(\d+)  (orders placed|charged on attempt \d+|in the DLQ, [a-z]+|still waiting|lost|charged twice)`)

// summary returns the counts at the end of a quickstart's output.
func summary(lines []string) map[string]int {
	counts := map[string]int{}
	for _, line := range lines {
		if m := counted.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				panic(err)
			}
			counts[m[2]] = n
		}
	}
	return counts
}

// oneRun has the expected counts of one run.
var oneRun = map[string]int{
	"orders placed": 10, "charged on attempt 1": 6, "charged on attempt 2": 1, "charged on attempt 3": 1,
	"in the DLQ, permanent": 1, "in the DLQ, exhausted": 1, "still waiting": 0, "lost": 0,
}

func checkSummary(t *testing.T, got, want map[string]int) {
	t.Helper()
	for what, n := range want {
		if have, ok := got[what]; !ok || have != n {
			t.Errorf("%s: %d (in the summary: %t), want %d", what, have, ok, n)
		}
	}
}

func show(t *testing.T, lines []string) {
	t.Helper()
	if t.Failed() {
		t.Logf("stdout:\n%s", strings.Join(lines, "\n"))
	}
}

// After the README's first command every order is charged or in the DLQ within 20 seconds. A later run with --fresh
// starts without the data.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	var env []string
	soon(t, func() time.Duration {
		env = home(t)
		return quickstart(t, env)
	})
	soon(t, func() time.Duration { return quickstart(t, env, "--fresh") })
}

// soon fails the test unless one of several runs takes less than 20 seconds. A run waits for 8.5 s on any machine. A
// busy machine may stand still for the rest of the time in one run, but not in each.
func soon(t *testing.T, run func() time.Duration) {
	t.Helper()
	const most, tries = 20 * time.Second, 5
	for range tries {
		if took := run(); took <= most || t.Failed() {
			return
		}
	}
	t.Errorf("none of %d runs ended within %s", tries, most)
}

// quickstart runs the program to its end and returns how long that took.
func quickstart(t *testing.T, env []string, args ...string) time.Duration {
	t.Helper()
	began := time.Now()
	p := start(t, env, "quickstart", args...)
	lines := p.rest()
	status, took := p.status(), time.Since(began)
	t.Logf("report: quickstart %v took %s", args, took.Round(100*time.Millisecond))
	if status != 0 {
		t.Errorf("%v: exit status %d, want 0", args, status)
	}
	checkSummary(t, summary(lines), oneRun)
	if text := strings.Join(lines, "\n"); strings.Contains(text, "\x1b") {
		t.Error("there are colours although stdout is not a terminal")
	}
	show(t, lines)
	return took
}

// Two runs are killed in the middle and one is interrupted. No order is lost, and the next run first finishes the
// waiting ones.
func TestQuickstartContinuesAfterAKill(t *testing.T) {
	t.Parallel()
	env := home(t)
	placed := 0
	for _, moment := range []struct {
		line string // it is ended when it has written this
		with os.Signal
	}{
		{"-05  placed", os.Kill},
		{"-08  retry in 1s", os.Kill},
		{"-08  retry in 2s", os.Interrupt},
	} {
		p := start(t, env, "quickstart")
		var lines []string
		for {
			line, ok := p.next()
			if !ok {
				show(t, append(lines, p.errors()))
				t.Fatalf("it ended unexpectedly before %q", moment.line)
			}
			lines = append(lines, line)
			if strings.Contains(line, "  placed") {
				placed++
			}
			// The run first finishes waiting orders of earlier runs, whose lines may match. Its own orders come later.
			if strings.Contains(line, moment.line) && strings.Contains(strings.Join(lines, "\n"), "-01  placed") {
				break
			}
		}
		p.signal(moment.with)
		for _, line := range p.rest() {
			lines = append(lines, line)
			if strings.Contains(line, "  placed") {
				placed++
			}
		}
		status := p.status()
		if moment.with == os.Kill {
			if status != -1 {
				t.Errorf("exit status %d of a killed process", status)
			}
			continue
		}
		got := summary(lines)
		if status != 0 || got["still waiting"] == 0 || got["lost"] != 0 {
			t.Errorf("interrupted at %q: exit status %d, summary %v; want 0, some that wait, none lost", moment.line, status, got)
		}
		show(t, lines)
	}
	p := start(t, env, "quickstart")
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "of an earlier run still wait: they come first.") {
		t.Error("it does not say that orders of an earlier run wait")
	}
	got := summary(lines)
	placed += 10
	// A kill may come between a line on the screen and the broker's confirmation.
	if n := got["orders placed"]; n > placed || n < placed-3 {
		t.Errorf("%d orders placed; %d lines said so", n, placed)
	}
	ends := 0
	for what, n := range got {
		if strings.HasPrefix(what, "charged on") || strings.HasPrefix(what, "in the DLQ") {
			ends += n
		}
	}
	if _, counted := got["lost"]; !counted || got["lost"] != 0 || got["still waiting"] != 0 || got["charged twice"] != 0 || ends != got["orders placed"] {
		t.Errorf("summary %v: want every order to have one end, none waiting, none lost", got)
	}
	show(t, lines)
}

// Two processes must not write to one directory.
func TestQuickstartRefusesToRunTwice(t *testing.T) {
	t.Parallel()
	env := home(t)
	first := start(t, env, "quickstart")
	for {
		line, ok := first.next()
		if !ok {
			t.Fatal("the first ended unexpectedly")
		}
		if strings.Contains(line, "placed") {
			break
		}
	}
	for _, args := range [][]string{nil, {"--fresh"}} {
		second := start(t, env, "quickstart", args...)
		if status := second.status(); status != 1 || !strings.Contains(second.errors(), "another quickstart is running") {
			t.Errorf("the second, with %v: exit status %d, %q", args, status, second.errors())
		}
	}
}

func TestQuickstartOnARealKafka(t *testing.T) {
	t.Parallel()
	p := start(t, home(t), "quickstart", "--broker", "kafka://"+strings.Join(brokers.RequireKafka(t), ","))
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	got := summary(lines)
	if got["orders placed"] != 10 {
		t.Logf("report: the broker held %d orders of other runs", got["orders placed"]-10)
	} else {
		checkSummary(t, got, oneRun)
	}
	if _, counted := got["lost"]; !counted || got["lost"] != 0 || got["still waiting"] != 0 {
		t.Errorf("summary %v: want none waiting, none lost", got)
	}
	show(t, lines)
}

func TestQuickstartUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--broker", "amqp://host:1"}, {"--broker", "kafka://h:1", "--fresh"}, {"now"}, {"--faster"}} {
		p := start(t, home(t), "quickstart", args...)
		if status := p.status(); status != 2 || p.errors() == "" {
			t.Errorf("%v: exit status %d, stderr %q; want 2 and why", args, status, p.errors())
		}
	}
}
