//go:build unix

// Package gotest runs tests of this repository on servers that somebody names, and prints what passed.
package gotest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redeliver/redeliver/integration/programs"
)

// EnvPrefix names the variable with the prefix of a run, with which the names of topics and groups begin.
const EnvPrefix = "REDELIVER_TEST_PREFIX"

// Prefix begins the prefix of every run.
const Prefix = "redeliver-test-"

// NewPrefix returns the prefix of one run.
func NewPrefix() string { return Prefix + strings.ToLower(rand.Text()[:10]) + "-" }

// Tests are the tests to run.
type Tests struct {
	Packages []string // from the repository's root
	Run      string   // as go test -run
	Tags     string
	Env      []string // name=value, beside this process's own
}

// maxTime bounds one package.
const maxTime = 40 * time.Minute

// Execute runs tests one package after another and prints a line for each test that ended, and the output of those that
// failed. It fails if a test fails or none passes.
func (t Tests) Execute(ctx context.Context, out io.Writer) error {
	root, err := programs.FindRoot()
	if err != nil {
		return err
	}
	args := append([]string{"test", "-json", "-count=1", "-p=1", "-timeout=" + maxTime.String(), "-tags=" + t.Tags, "-run", t.Run}, t.Packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), t.Env...), out
	// go test does not end the processes that the tests start, so all of them are signalled.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	var r results
	r.read(stdout, out)
	err = cmd.Wait()
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the tests were ended: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("the tests failed: %w", err)
	case r.passed == 0:
		return fmt.Errorf("no test matches %q", t.Run)
	}
	return nil
}

// results counts tests.
type results struct {
	passed, failed, skipped int
	output                  map[string][]string // of running tests
}

// read reads the output of go test -json.
func (r *results) read(from io.Reader, out io.Writer) {
	r.output = make(map[string][]string)
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.take(line, out)
		}
		if err != nil {
			return
		}
	}
}

func (r *results) take(line string, out io.Writer) {
	var e struct {
		Action  string  `json:"Action"`
		Package string  `json:"Package"`
		Test    string  `json:"Test"`
		Elapsed float64 `json:"Elapsed"`
		Output  string  `json:"Output"`
	}
	if json.Unmarshal([]byte(line), &e) != nil {
		fmt.Fprint(out, line)
		return
	}
	key := e.Package + " " + e.Test
	if e.Action == "output" || e.Action == "build-output" {
		if e.Test == "" || strings.Contains(e.Output, "report: ") {
			fmt.Fprint(out, e.Output)
		}
		if e.Test != "" {
			r.output[key] = append(r.output[key], e.Output)
		}
		return
	}
	if e.Test == "" { // a package
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprint(out, strings.Join(r.output[key], ""))
	case "skip":
		r.skipped++
	default:
		return
	}
	fmt.Fprintf(out, "%-4s %s (%.1f s)\n", e.Action, e.Test, e.Elapsed)
	delete(r.output, key)
}
