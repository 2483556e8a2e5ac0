package main

import (
	"fmt"
	"io"
	"slices"
)

// onExpectedFailures matches the tests that show a known fault. They fail until it is fixed.
const onExpectedFailures = "^TestExpectedFailure"

// expectedFailure is a test that fails because of a fault that is known and not fixed yet.
type expectedFailure struct {
	pkg, test string
	fault     string
}

// expectedFailures are all known faults that a test shows. prove runs the tests and prints the list. It fails when one of
// them passes, or when a test fails that is not listed.
var expectedFailures []expectedFailure

// packagesOf returns the packages of the list, each once.
func packagesOf(list []expectedFailure) (all []string) {
	for _, e := range list {
		if !slices.Contains(all, e.pkg) {
			all = append(all, e.pkg)
		}
	}
	return all
}

// expectFailures inverts the suite's verdict: it passes if exactly the tests of s.failing failed.
func (s *suite) expectFailures() {
	for _, p := range s.packages {
		if !p.completed {
			return // a panic, or it does not compile
		}
	}
	failed := func(e expectedFailure) bool {
		return slices.ContainsFunc(s.failures, func(f failure) bool { return short(f.pkg) == e.pkg && f.test == e.test })
	}
	for _, p := range s.packages {
		p.verdict = "ok"
	}
	for _, e := range s.failing {
		if !failed(e) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %s did not fail: if it ran, rename it and take it off the list in expected.go", e.pkg, e.test))
		}
	}
	for _, f := range s.failures {
		listed := func(e expectedFailure) bool { return short(f.pkg) == e.pkg && f.topLevel() == e.test }
		if !slices.ContainsFunc(s.failing, listed) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: %s failed, but expected.go does not list it", short(f.pkg), f.test))
		}
	}
	s.err = nil
	if len(s.wrong) > 0 {
		s.err = fmt.Errorf("%d tests did not behave as expected.go says", len(s.wrong))
	}
}

// printExpected prints the known faults, and the differences from the list.
func (s *suite) printExpected(out io.Writer) {
	if len(s.failing) == 0 {
		return
	}
	fmt.Fprintln(out, "\nKnown faults, each with a test that is expected to fail:")
	for _, e := range s.failing {
		fmt.Fprintf(out, "  %s %s: %s\n", e.pkg, e.test, e.fault)
	}
	for _, wrong := range s.wrong {
		fmt.Fprintln(out, wrong)
	}
}
