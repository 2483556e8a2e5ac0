package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// maxFlaky is the number of failures that a run accepts if they pass alone.
const maxFlaky = 2

// dataRace is the message of package testing below a test that was running when the race detector found a race.
const dataRace = "race detected during execution of test"

// retry runs each failed test once more, alone, if there are at most maxFlaky. A package whose process ended early runs
// again as a whole.
func (t *table) retry(ctx context.Context, out io.Writer) {
	type failed struct {
		in *suite
		failure
	}
	var all []failed
	for _, s := range t.suites {
		if len(s.packages) == 0 {
			return // nothing was compiled
		}
		if len(s.failing) > 0 {
			continue // failures are expected
		}
		for _, p := range s.packages {
			if len(p.silent)+len(p.unexpected) > 0 {
				return
			}
			for _, f := range s.failuresOf(p) {
				all = append(all, failed{s, f})
			}
		}
	}
	if len(all) == 0 || len(all) > maxFlaky {
		return
	}
	for _, f := range all {
		argv := slices.Clone(f.in.argv)
		if f.test != "" {
			argv = append(argv, "-run", exactly(f.test)) // the last -run counts
		}
		second := newSuite("again: "+strings.TrimSpace(short(f.pkg)+" "+f.test), argv, []string{f.pkg})
		second.out, second.errOut, second.expected = out, f.in.errOut, f.in.expected
		second.execute(ctx)
		if !second.ok() {
			return
		}
	}
	for _, f := range all {
		f.in.accept(f.pkg)
		t.flaky = append(t.flaky, f.failure)
	}
}

// failuresOf returns the failures of a package that must pass. Of a test and its subtests it returns the innermost. A
// package whose process ended early is one failure without a test's name. So is a package with a data race, which fails
// every test that ran meanwhile.
func (s *suite) failuresOf(p *pkg) []failure {
	if p.verdict != "FAIL" {
		return nil
	}
	var all []failure
	for _, f := range s.failures {
		inner := func(g failure) bool { return g.pkg == f.pkg && strings.HasPrefix(g.test, f.test+"/") }
		if f.pkg == p.name && !slices.ContainsFunc(s.failures, inner) {
			all = append(all, f)
		}
	}
	race := slices.ContainsFunc(all, func(f failure) bool { return strings.Contains(strings.Join(f.output, ""), dataRace) })
	if !p.completed || len(all) == 0 || race {
		whole := failure{pkg: p.name}
		for _, f := range all {
			whole.output = append(whole.output, f.output...)
		}
		return []failure{whole}
	}
	return all
}

// accept removes a package's failures. The suite's only error was that tests failed.
func (s *suite) accept(name string) {
	s.pkg(name).verdict = "FLAKY"
	if !slices.ContainsFunc(s.packages, func(p *pkg) bool { return p.verdict == "FAIL" }) {
		s.err = nil
	}
}

// exactly returns the regular expression for go test -run that matches one test.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = fmt.Sprintf("^%s$", regexp.QuoteMeta(part))
	}
	return strings.Join(parts, "/")
}
