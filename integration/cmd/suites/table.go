package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table is the account at the end of a run.
type table struct {
	suites []*suite
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
			passed, failed, skipped = passed+p.passed, failed+p.failed, skipped+len(p.skipped)+len(p.silent)+len(p.strange)
		}
		// The suite's own row holds everything, also the compiler and the brokers' start.
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%d\t%d\t%d\t%s\n", s.name, s.took.Seconds(), s.cpu.Seconds(), passed, failed, skipped, verdict(s.ok()))
		for _, p := range s.packages {
			if p.verdict == "ok" && p.passed+len(p.skipped) == 0 {
				continue // no tests in it
			}
			fmt.Fprintf(w, "  %s\t%.1f\t%.0f\t%d\t%d\t%d\t%s\n", short(p.name), p.seconds, p.cpu.Seconds(), p.passed, p.failed,
				len(p.skipped)+len(p.silent)+len(p.strange), p.verdict)
		}
	}
	fmt.Fprintf(w, "total\t%.1f\t%.0f\t\t\t\t%s\n", t.took.Seconds(), t.cpu().Seconds(), verdict(t.ok()))
	_ = w.Flush()
	t.printReasons(out)
	t.printFailures(out)
}

// printReasons says what the table cannot: why something is FAIL, and what was skipped and why.
func (t *table) printReasons(out io.Writer) {
	for _, s := range t.suites {
		if s.err != nil {
			fmt.Fprintf(out, "\n%s: %v\n", s.name, s.err)
		} else if s.tests() == 0 {
			fmt.Fprintf(out, "\n%s: not one test ran\n", s.name)
		}
		for _, p := range s.packages {
			for _, name := range p.silent {
				fmt.Fprintf(out, "%s: %s was skipped without a reason; that counts as a failure\n", short(p.name), name)
			}
			for _, why := range p.strange {
				fmt.Fprintf(out, "%s: skipped %s; that is not among the explained (integration/cmd/suites/skips.go) and counts as a failure\n", short(p.name), why)
			}
			for _, why := range p.skipped {
				fmt.Fprintf(out, "%s: skipped %s\n", short(p.name), why)
			}
		}
	}
}

// most is how many lines of a failure are said again.
const most = 40

// printFailures says once more why tests have failed: where that was said first may be a thousand lines above.
func (t *table) printFailures(out io.Writer) {
	for _, s := range t.suites {
		for _, f := range s.failures {
			if len(f.output) == 1 && strings.HasPrefix(strings.TrimSpace(f.output[0]), "--- FAIL") {
				continue // most likely one of its subtests has failed, and says why
			}
			lines := strings.Split(strings.TrimSuffix(strings.Join(f.output, ""), "\n"), "\n")
			fmt.Fprintf(out, "\n%s: %s failed:\n", short(f.pkg), f.test)
			if cut := len(lines) - most; cut > 0 {
				fmt.Fprintf(out, "(%d lines more, above)\n", cut)
				lines = lines[cut:]
			}
			fmt.Fprintln(out, strings.Join(lines, "\n"))
		}
	}
}

// short cuts the module's path, which all packages share.
func short(name string) string {
	const module = "github.com/redeliver/redeliver"
	if rest, ok := strings.CutPrefix(name, module); ok {
		return "." + rest
	}
	return name
}
