package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The verdict is what stands between a broken change and the main branch, so it is tried on a real go test: of a
// module that is written here, one test file a case.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name  string
		tests string
		ok    bool
		shows string // in the output or the table
		hides string
	}{
		{"passes", `func TestA(t *testing.T) { t.Log("quiet") }`, true, "ok", "quiet"},
		{"fails", `func TestA(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("wrong") }) }`, false, "wrong", ""},
		{"reports", `func TestA(t *testing.T) { t.Log("report: seed 7") }`, true, "seed 7", ""},
		{"skips as expected", `func TestA(t *testing.T) {}; func TestKnown(t *testing.T) { t.Skip("no such feature") }`, true, "no such feature", ""},
		{"skips and says why", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip("no such feature") }`, false, "not among the explained", ""},
		{"skips in silence", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.SkipNow() }`, false, "TestB was skipped without a reason", ""},
		{"skips without words", `func TestA(t *testing.T) {}; func TestB(t *testing.T) { t.Skip() }`, false, "TestB was skipped without a reason", ""},
		{"has no tests", ``, false, "not one test ran", ""},
		{"panics", `func TestA(t *testing.T) { t.Log("before"); panic("out of coffee") }`, false, "out of coffee", ""},
		{"exits", `func TestA(t *testing.T) { os.Exit(3) }; var _ = os.Exit`, false, "FAIL", ""},
		{"does not compile", `func TestA(t *testing.T) { undefined() }`, false, "undefined: undefined", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			s := newSuite("sample", &out)
			s.explained = []skip{{regexp.MustCompile("^sample TestKnown$"), "for this test"}}
			s.err = goTest(t, c.tests, s)
			table := table{suites: []*suite{s}}
			table.print(&out)
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

func goTest(t *testing.T, tests string, s *suite) error {
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
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	s.read(bytes.NewReader(out))
	return err
}

// What the tests of an adapter need for a real broker is in the command, or they would run on the one in the process.
func TestAdaptersRunBesideTheirBroker(t *testing.T) {
	argv, err := options{}.command("adapters")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(argv, " ")
	for _, want := range []string{"withbrokers --kafka -- go test ", " -run " + onKafka + " ./adapters/kafka"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// A module that unit does not name is tested by nobody.
func TestUnitHasTheCommand(t *testing.T) {
	argv, err := options{}.command("unit")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(argv, " "); !strings.HasSuffix(got, " ./... ./cmd/redeliver/...") {
		t.Errorf("%q", got)
	}
}

// A test runs on one Kafka or on the other, and never on none.
func TestUnitLeavesToAdaptersWhatRunsThere(t *testing.T) {
	for _, c := range []struct {
		names  []string
		leaves bool
	}{{[]string{"unit"}, false}, {[]string{"unit", "integration"}, false}, {[]string{"unit", "adapters"}, true}} {
		argv, err := options{names: c.names}.command("unit")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(argv, " "); strings.Contains(got, " -skip "+onKafka+" ") != c.leaves {
			t.Errorf("of %v: %q", c.names, got)
		}
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
