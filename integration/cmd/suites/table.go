package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// table is the summary at the end of a run.
type table struct {
	suites []*suite
	flaky  []failure // failed, then passed alone
	took   time.Duration
}

func (t *table) ok() bool {
	for _, s := range t.suites {
		if !s.ok() {
			return false
		}
	}
	return len(t.suites) > 0
}

func (t *table) cpu() (all time.Duration) {
	for _, s := range t.suites {
		all += s.cpu
	}
	return all
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAIL"
}

func (t *table) print(out io.Writer) {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "suite\tseconds\tCPU\tpassed\tfailed\tskipped\tverdict")
	for _, s := range t.suites {
		passed, failed, skipped := 0, 0, 0
		for _, p := range s.packages {
			passed, failed, skipped = passed+p.passed, failed+p.failed, skipped+len(p.skipped)+len(p.silent)+len(p.unexpected)
		}
		// The suite's own row includes the compiler.
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%d\t%d\t%d\t%s\n", s.name, s.took.Seconds(), s.cpu.Seconds(), passed, failed, skipped, verdict(s.ok()))
		for _, p := range s.packages {
			if p.verdict == "ok" && p.passed+len(p.skipped) == 0 {
				continue // it has no tests
			}
			fmt.Fprintf(w, "  %s\t%.1f\t%.0f\t%d\t%d\t%d\t%s\n", short(p.name), p.seconds, p.cpu.Seconds(), p.passed, p.failed,
				len(p.skipped)+len(p.silent)+len(p.unexpected), p.verdict)
		}
	}
	fmt.Fprintf(w, "total\t%.1f\t%.0f\t\t\t\t%s\n", t.took.Seconds(), t.cpu().Seconds(), verdict(t.ok()))
	_ = w.Flush()
	t.printReasons(out)
	t.printFailures(out)
	t.printFlaky(out)
	for _, s := range t.suites {
		s.printExpected(out)
	}
}

// printReasons prints what does not fit into the table: why a verdict is FAIL, and which tests were skipped and why.
func (t *table) printReasons(out io.Writer) {
	for _, s := range t.suites {
		if s.err != nil {
			fmt.Fprintf(out, "\n%s: %v\n", s.name, s.err)
		} else if s.tests() == 0 {
			fmt.Fprintf(out, "\n%s: no test ran\n", s.name)
		}
		for _, p := range s.packages {
			for _, name := range p.silent {
				fmt.Fprintf(out, "%s: %s was skipped without a reason; that counts as a failure\n", short(p.name), name)
			}
			for _, why := range p.unexpected {
				fmt.Fprintf(out, "%s: skipped %s; that is not listed in integration/cmd/suites/skips.go and counts as a failure\n", short(p.name), why)
			}
			for _, why := range p.skipped {
				fmt.Fprintf(out, "%s: skipped %s\n", short(p.name), why)
			}
		}
	}
}

// printFailures prints the output of failed tests again, because the first time may be a thousand lines above.
func (t *table) printFailures(out io.Writer) {
	for _, s := range t.suites {
		if s.ok() {
			continue
		}
		for _, f := range s.failures {
			if !f.byASubtest() {
				fmt.Fprintf(out, "\n%s: %s failed:\n%s\n", short(f.pkg), f.test, f.lastLines())
			}
		}
	}
}

// printFlaky prints the tests that failed and then passed alone, with the output of the failure.
func (t *table) printFlaky(out io.Writer) {
	listed, _ := os.ReadFile("CONTRIBUTING.md")
	for _, f := range t.flaky {
		fmt.Fprintf(out, "\nFLAKY %s %s: it failed, then passed alone. The failure's output:\n%s\n", short(f.pkg), f.test, f.lastLines())
		name := f.topLevel()
		if !strings.Contains(string(listed), name) {
			fmt.Fprintf(out, "Add %s to the list of rare failures in CONTRIBUTING.md until its cause is found.\n", name)
		}
	}
}

// byASubtest reports whether the output only says that a subtest failed.
func (f failure) byASubtest() bool {
	return len(f.output) == 1 && strings.HasPrefix(strings.TrimSpace(f.output[0]), "--- FAIL")
}

// lastLines returns the end of the output.
func (f failure) lastLines() string {
	const maxLines = 40
	lines := strings.Split(strings.TrimSuffix(strings.Join(f.output, ""), "\n"), "\n")
	if cut := len(lines) - maxLines; cut > 0 {
		return fmt.Sprintf("(%d more lines above)\n%s", cut, strings.Join(lines[cut:], "\n"))
	}
	return strings.Join(lines, "\n")
}

// short removes the module's path, which all packages share.
func short(name string) string {
	const module = "github.com/redeliver/redeliver"
	if rest, ok := strings.CutPrefix(name, module); ok {
		return "." + rest
	}
	return name
}
