package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Elapsed float64 `json:"Elapsed"`
	Output  string  `json:"Output"`
}

// pkg is the result of one package's tests.
type pkg struct {
	name       string
	verdict    string // ok, FLAKY, FAIL
	shuffle    string // the seed of the test order, as go test prints it
	seconds    float64
	cpu        time.Duration // of its tests and of all processes that they started and waited for
	passed     int
	failed     int
	completed  bool     // all its tests ran
	inRace     bool     // the current output is a report of the race detector
	skipped    []string // the reasons, one line each
	silent     []string // names of tests skipped without a reason
	unexpected []string // skipped with a reason, but not listed in skips.go
}

// failure is a test that failed, or that was running when its process ended, with its output.
type failure struct {
	pkg, test string
	output    []string
}

// topLevel returns the name of the test without those of its subtests.
func (f failure) topLevel() string {
	name, _, _ := strings.Cut(f.test, "/")
	return name
}

// suite is one run of go test, and collects its events. Like go test without -v it prints the output of a test only
// when the test fails. In addition it always prints a logged line that contains "report: ", such as a seed, or the
// number of killed processes.
type suite struct {
	name   string
	argv   []string // go test and its flags
	names  []string // the packages
	out    io.Writer
	errOut io.Writer
	beside *suite // runs at the same time and is printed after this one; nil for none

	took time.Duration
	cpu  time.Duration // of the tests and the compiler
	err  error         // how the command ended

	expected []skip
	failing  []expectedFailure // if not empty, exactly these tests must fail
	wrong    []string          // the differences from failing

	packages []*pkg
	failures []failure
	output   map[string][]string // of running tests, by package and test
}

func newSuite(name string, argv, packages []string) *suite {
	return &suite{name: name, argv: argv, names: packages, expected: expectedSkips, output: map[string][]string{}}
}

// reportMark marks a logged line that is printed even if its test passes.
const reportMark = "report: "

// read reads the whole output of go test -json.
func (s *suite) read(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.readLine(line)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				fmt.Fprintf(s.out, "suites: reading the tests' output: %v\n", err)
			}
			return
		}
	}
}

func (s *suite) readLine(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		fmt.Fprint(s.out, line) // a program wrote it directly, without go test
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		s.addOutput(e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *suite) addOutput(e event) {
	if e.Test == "" {
		// The package's own lines: "ok ...", "FAIL ...", a panic. The seed matters after a failure.
		cpu, isMeter := cpuOf(e.Output)
		switch {
		case isMeter:
			s.pkg(e.Package).cpu = cpu
		case e.Output == "PASS\n", e.Output == "FAIL\n":
			s.pkg(e.Package).completed = true
		case strings.HasPrefix(e.Output, "-test.shuffle "):
			s.pkg(e.Package).shuffle = e.Output
		default:
			fmt.Fprint(s.out, e.Output)
		}
		return
	}
	s.showRace(e)
	if strings.Contains(e.Output, reportMark) {
		fmt.Fprintf(s.out, "%s: %s\n", e.Test, strings.TrimSpace(e.Output))
	}
	for _, noise := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME"} {
		if strings.HasPrefix(e.Output, noise) {
			return
		}
	}
	key := e.Package + " " + e.Test
	s.output[key] = append(s.output[key], e.Output)
}

// showRace prints the race detector's report at once. go test adds it to the test that wrote last, which may pass.
func (s *suite) showRace(e event) {
	p := s.pkg(e.Package)
	switch {
	case strings.HasPrefix(e.Output, "WARNING: DATA RACE"):
		p.inRace = true
	case strings.HasPrefix(e.Output, "=================="):
		p.inRace = false
	}
	if p.inRace {
		fmt.Fprint(s.out, e.Output)
	}
}

func (s *suite) endTest(e event) {
	p := s.pkg(e.Package)
	key := e.Package + " " + e.Test
	output := s.output[key]
	delete(s.output, key)
	switch e.Action {
	case "pass":
		p.passed++
	case "fail":
		p.failed++
		s.failed(failure{e.Package, e.Test, output})
	case "skip":
		switch why := reason(output); {
		case why == "":
			p.silent = append(p.silent, e.Test)
		case !contains(s.expected, e.Package, e.Test):
			p.unexpected = append(p.unexpected, e.Test+": "+why)
		default:
			p.skipped = append(p.skipped, e.Test+": "+why)
		}
	}
}

// failed prints the test's output at once, and keeps it for the end.
func (s *suite) failed(f failure) {
	fmt.Fprint(s.out, strings.Join(f.output, ""))
	s.failures = append(s.failures, f)
}

// reason returns the message that a skipped test logged.
func reason(output []string) string {
	var lines []string
	for _, l := range output {
		if l = strings.TrimSpace(l); l == "" || strings.HasPrefix(l, "--- SKIP") {
			continue
		}
		// "file_test.go:12: why". T.Skip without arguments prints nothing after the colon.
		if at, why, ok := strings.Cut(l, ": "); ok && strings.Contains(at, ".go:") {
			l = why
		} else if strings.Contains(l, ".go:") {
			l = ""
		}
		if l != "" {
			lines = append(lines, l)
		}
	}
	return strings.Join(lines, " ")
}

func (s *suite) endPackage(e event) {
	p := s.pkg(e.Package)
	p.seconds = e.Elapsed
	p.verdict = "ok"
	if e.Action == "fail" {
		p.verdict = "FAIL"
		fmt.Fprint(s.out, p.shuffle)
		// Tests that have not ended: a panic or a timeout ended their process.
		var open []string
		for key := range s.output {
			if strings.HasPrefix(key, e.Package+" ") {
				open = append(open, key)
			}
		}
		slices.Sort(open)
		for _, key := range open {
			s.failed(failure{e.Package, strings.TrimPrefix(key, e.Package+" "), s.output[key]})
			delete(s.output, key)
		}
	}
	if len(p.silent)+len(p.unexpected) > 0 {
		p.verdict = "FAIL"
	}
}

func (s *suite) pkg(name string) *pkg {
	for _, p := range s.packages {
		if p.name == name {
			return p
		}
	}
	p := &pkg{name: name, verdict: "FAIL"} // until go test reports otherwise
	s.packages = append(s.packages, p)
	return p
}

func (s *suite) tests() int {
	n := 0
	for _, p := range s.packages {
		n += p.passed + p.failed
	}
	return n
}

func (s *suite) ok() bool {
	return s.err == nil && s.tests() > 0 &&
		!slices.ContainsFunc(s.packages, func(p *pkg) bool { return p.verdict == "FAIL" })
}
