package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == meterVerb: // go test starts this program so in TestCPUOfAPackage
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case len(os.Args) == 2 && os.Args[1] == signalsVerb:
		printSignals()
		return
	}
	os.Exit(m.Run())
}

// The verdict keeps a broken change out of the main branch, so it is tested with a real go test. The test writes a module
// with one test file for each case.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		tests string
		ok    bool
		shows string // in the output or the table
		hides string
		again string // after the table
	}{
		{"passes", `func TestA(t *testing.T) { t.Log("quiet") }`, true, "ok", "quiet", ""},
		{"fails", `func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("wrong") }) }`, false, "wrong", "", "a_test.go:4: wrong"},
		{"reports", `func TestA(t *testing.T) { t.Log("report: seed 7") }`, true, "seed 7", "", ""},
		{"skips as expected", `func TestA(t *testing.T) {}; func TestKnown(t *testing.T) { t.Skip("no such feature") }`, true, "no such feature", "", ""},
		{"skips and says why", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip("no such feature") }`, false, "not listed in", "", ""},
		{"skips in silence", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.SkipNow() }`, false, "TestB was skipped without a reason", "", ""},
		{"skips without words", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip() }`, false, "TestB was skipped without a reason", "", ""},
		{"shows a race in a test that passes", `func TestA(t *testing.T) { t.Log(""); os.Stdout.WriteString("==================\nWARNING: DATA RACE\nin a.go\n==================\n") }`, true, "in a.go", "", ""},
		{"has no tests", ``, false, "no test ran", "", ""},
		{"panics", `func TestA(t *testing.T) { t.Log("before"); panic("out of coffee") }`, false, "out of coffee", "", "before"},
		{"exits", `func TestA(t *testing.T) { os.Exit(3) }; var _ = os.Exit`, false, "FAIL", "", ""},
		{"does not compile", `func TestA(t *testing.T) { undefined() }`, false, "undefined: undefined", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := sample(t, c.tests, &out)
			s.execute(t.Context())
			table := table{suites: []*suite{s}}
			table.print(&out)
			if c.again != "" {
				if _, end, _ := strings.Cut(out.String(), "\ntotal"); strings.Count(end, c.again) != 1 {
					t.Errorf("after the table %q is not said once:\n%s", c.again, out.String())
				}
			}
			if s.ok() != c.ok {
				t.Errorf("ok = %v, want %v; output:\n%s", s.ok(), c.ok, out.String())
			}
			if !strings.Contains(out.String(), c.shows) {
				t.Errorf("output lacks %q:\n%s", c.shows, out.String())
			}
			if c.hides != "" && strings.Contains(out.String(), c.hides) {
				t.Errorf("output shows %q:\n%s", c.hides, out.String())
			}
		})
	}
}

func TestSuiteOfExpectedFailures(t *testing.T) {
	const a, b = `func TestA(t *testing.T) { t.Error("wrong") }; `, `func TestB(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("wrong") }) }; `
	for _, c := range []struct {
		name  string
		tests string
		ok    bool
		shows string
	}{
		{"all fail", a + b, true, "sample TestA: the known fault"},
		{"one passes", a + `func TestB(t *testing.T) {}`, false, "sample: TestB did not fail"},
		{"one is gone", a, false, "sample: TestB did not fail"},
		{"one more fails", a + b + `func TestC(t *testing.T) { t.Error("wrong") }`, false, "sample: TestC failed"},
		{"panics", a + b + `func TestC(t *testing.T) { panic("out of coffee") }`, false, "out of coffee"},
		{"does not compile", a + b + `func TestC(t *testing.T) { undefined() }`, false, "undefined: undefined"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := sample(t, c.tests, &out)
			s.failing = []expectedFailure{{"sample", "TestA", "the known fault"}, {"sample", "TestB", "another"}}
			s.execute(t.Context())
			sum := table{suites: []*suite{s}}
			sum.retry(t.Context(), &out)
			sum.print(&out)
			if sum.ok() != c.ok || len(sum.flaky) > 0 {
				t.Errorf("ok = %v, want %v; %d flaky, want none; output:\n%s", sum.ok(), c.ok, len(sum.flaky), out.String())
			}
			if !strings.Contains(out.String(), c.shows) {
				t.Errorf("output lacks %q:\n%s", c.shows, out.String())
			}
		})
	}
}

// The tests of known faults and the list are the same set.
func TestEveryExpectedFailureIsListed(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	var found []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, m := range regexp.MustCompile(`(?m)^func (TestExpectedFailure\w+)\(t \*testing\.T\)`).FindAllSubmatch(text, -1) {
			found = append(found, "./"+filepath.ToSlash(rel)+" "+string(m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, e := range expectedFailures {
		listed = append(listed, e.pkg+" "+e.test)
	}
	slices.Sort(found)
	slices.Sort(listed)
	if !slices.Equal(found, listed) {
		t.Errorf("the tests are\n%s\nand expected.go lists\n%s", strings.Join(found, "\n"), strings.Join(listed, "\n"))
	}
}

// sample returns a suite over a module of one package with these tests.
func sample(t *testing.T, tests string, out *bytes.Buffer) *suite {
	t.Helper()
	dir := t.TempDir()
	imports := "import \"testing\"\n"
	if strings.Contains(tests, "os.") {
		imports = "import (\"os\"; \"testing\")\n"
	}
	for name, text := range map[string]string{
		"go.mod":    "module sample\n\ngo 1.26\n",
		"a_test.go": "package sample\n" + imports + "var _ testing.TB\n" + tests + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := []string{"env", "GOWORK=off", "GOFLAGS=", "go", "-C", dir, "test", "-json", "-count=1", "-exec", self + " " + meterVerb}
	s := newSuite("sample", argv, []string{"sample"})
	s.out, s.errOut = out, io.Discard
	s.expected = []skip{{regexp.MustCompile("^sample TestKnown$"), "for this test"}}
	return s
}

// The CPU time of a package includes the processes that its tests start, and the meter's own output is not printed.
func TestCPUOfAPackage(t *testing.T) {
	var out bytes.Buffer
	s := sample(t, `func TestA(t *testing.T) {
	const burn = "u=0m0.0; while case $u in 0m0.[012]*) true;; *) false;; esac; do " +
		"i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; times >times; read -r u rest <times; done"
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", burn}, &os.ProcAttr{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Fatal(state, err)
	}
}`, &out)
	s.execute(t.Context())
	if !s.ok() || len(s.packages) != 1 {
		t.Fatalf("%v:\n%s", s.err, out.String())
	}
	if cpu := s.packages[0].cpu; cpu < 250*time.Millisecond || cpu > time.Minute { // it is printed in tenths
		t.Errorf("a package whose child has burnt 0.3 s took %s of CPU", cpu)
	}
	if strings.Contains(out.String(), meterMark) {
		t.Errorf("the meter's lines are shown:\n%s", out.String())
	}
}

// signalsVerb makes this program print the signals that it receives, until its input ends.
const signalsVerb = "signals"

func printSignals() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	fmt.Println("ready")
	for {
		select {
		case s := <-signals:
			fmt.Println(s)
		case <-over:
			return
		}
	}
}

// A signal to the process group reaches the tests once. The meter used to forward it to the tests, which had already
// received it. It does forward SIGQUIT, because go test knows only the meter.
func TestTheMeterForwardsOnlySIGQUIT(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, meterVerb, self, signalsVerb)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	wantSignal := func(want string) {
		t.Helper()
		if !said.Scan() || said.Text() != want {
			t.Errorf("the tests say %q, want %q: %v", said.Text(), want, said.Err())
		}
	}
	send := func(s syscall.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	wantSignal("ready")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		send(s)
	}
	for range 2 { // the first of two forwarded signals is printed before the second
		send(syscall.SIGQUIT)
		wantSignal("quit")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if !said.Scan() || !strings.HasPrefix(said.Text(), meterMark) {
		t.Errorf("the meter says %q", said.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestProgramsAreLinkedWithoutSymbols(t *testing.T) {
	for flags, want := range map[string]string{"": "-ldflags=-s", "-buildvcs=false": "-buildvcs=false -ldflags=-s", "-ldflags=-w": "-ldflags=-w"} {
		if got := withoutSymbols(flags); got != want {
			t.Errorf("GOFLAGS %q become %q, want %q", flags, got, want)
		}
	}
}

func TestEveryPackageOfIntegrationIsRunOnce(t *testing.T) {
	t.Chdir("../../..")
	packages, err := integration("prove")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(packages[:len(longest)], longest) {
		t.Errorf("%v go first, want the longest", packages[:len(longest)])
	}
	runs := make(map[string]int)
	for _, p := range slices.Concat(packages, breaking) {
		runs[p]++
	}
	for _, pattern := range []string{"integration/*/*_test.go", "integration/*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, file := range files {
			if p := "./" + filepath.Dir(file); runs[p] == 0 {
				t.Errorf("%s is not run", p)
				runs[p] = 1 // report it once
			}
		}
	}
	for p, n := range runs {
		if n > 1 {
			t.Errorf("%s is run %d times", p, n)
		}
	}
}

// If Watermill renamed the tag, its suite would silently have the short deadlines again.
func TestWatermillHasTheTag(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags="+watermillTag, "-f", "{{.GoFiles}}", "github.com/ThreeDotsLabs/watermill/pubsub/tests").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "test_pubsub_stress.go") {
		t.Errorf("%s, %v", out, err)
	}
}

// A module that unit does not name is not tested.
func TestUnitHasTheCommand(t *testing.T) {
	suites, err := options{tier: "unit"}.suites()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(slices.Clone(longestUnit), shared...) {
		if p == "./observe/..." {
			p = "./observe/otel"
		}
		if files, err := filepath.Glob(filepath.Join("../../..", p, "*_test.go")); err != nil || len(files) == 0 {
			t.Errorf("%s has no tests: %v", p, err)
		}
	}
	if got := suites[0].names; !slices.Equal(got[len(longestUnit):], []string{"./...", "./observe/otel/...", "./cmd/redeliver/..."}) {
		t.Errorf("%q", got)
	}
}

// One failure that passes alone does not fail the run. A test that fails again does, and so do three failures.
func TestRetry(t *testing.T) {
	once := func(name string) string {
		return "func Test" + name + `(t *testing.T) { t.Run("sub", func(t *testing.T) {
			if f, err := os.OpenFile("` + name + `", os.O_CREATE|os.O_EXCL, 0o600); err == nil { f.Close(); t.Error("the first time") } }) }; `
	}
	crash := `func TestCrash(t *testing.T) { if f, err := os.OpenFile("crash", os.O_CREATE|os.O_EXCL, 0o600); err == nil { f.Close(); panic("once") } }; `
	for _, c := range []struct {
		name  string
		tests string
		ok    bool
		flaky []string
	}{
		{"once", once("A"), true, []string{"TestA/sub"}},
		{"two once", once("A") + once("B"), true, []string{"TestA/sub", "TestB/sub"}},
		{"three once", once("A") + once("B") + once("C"), false, nil},
		{"always", `func TestA(t *testing.T) { t.Error("wrong") }; var _ = os.Args`, false, nil},
		{"one of two always", once("A") + `func TestB(t *testing.T) { t.Error("wrong") }`, false, nil},
		{"crashes once", crash, true, []string{""}},
		{"a race in three", strings.ReplaceAll(once("A")+once("B")+once("C"), "the first time", dataRace), true, []string{""}},
		{"skips in silence", once("A") + `func TestB(t *testing.T) { t.SkipNow() }`, false, nil},
		{"does not compile", `func TestA(t *testing.T) { undefined() }; var _ = os.Args`, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := sample(t, c.tests, &out)
			s.execute(t.Context())
			if s.ok() {
				t.Fatalf("the first run passed:\n%s", out.String())
			}
			sum := table{suites: []*suite{s}}
			sum.retry(t.Context(), &out)
			sum.print(&out)
			if sum.ok() != c.ok {
				t.Errorf("ok = %v, want %v; output:\n%s", sum.ok(), c.ok, out.String())
			}
			var flaky []string
			for _, f := range sum.flaky {
				flaky = append(flaky, f.test)
			}
			if !slices.Equal(flaky, c.flaky) {
				t.Errorf("flaky %q, want %q; output:\n%s", flaky, c.flaky, out.String())
			}
			if c.ok && !strings.Contains(out.String(), "FLAKY sample ") {
				t.Errorf("the flaky test is not reported:\n%s", out.String())
			}
		})
	}
}

func TestWrongCalls(t *testing.T) {
	for _, args := range [][]string{{}, {"no-such-suite"}, {"-no-such-flag"}} {
		var out, errs bytes.Buffer
		if got := run(args, &out, &errs); got != 2 || errs.Len() == 0 {
			t.Errorf("suites %q: status %d and %q, want 2 and a word", args, got, errs.String())
		}
	}
}

func TestWithoutSleepKeepsOtherOptions(t *testing.T) {
	for options, want := range map[string]string{
		"": "atexit_sleep_ms=0", "halt_on_error=1": "halt_on_error=1 atexit_sleep_ms=0", "atexit_sleep_ms=50": "atexit_sleep_ms=50",
	} {
		if got := withoutSleep(options); got != want {
			t.Errorf("with GORACE=%q: %q, want %q", options, got, want)
		}
	}
}
