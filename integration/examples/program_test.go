// Package examples_test builds the programs of examples/ and runs them as a user
// would: from outside, by their flags, their output and their exit status.
package examples_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/programs"
)

// maxWait bounds the waits of the tests. No test depends on how soon something happens.
const maxWait = 90 * time.Second

var built string // the directory of the programs

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if built, err = programs.Build("", "./examples/batch", "./examples/console", "./examples/portable", "./examples/quickstart", "./examples/rabbitmq", "./examples/sqs", "./examples/worker"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// These tests wait most of their time. By default go test runs only as many at once as there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// program is one run of a program.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string   // of its stdout, closed at its end
	ended chan struct{} // closed when it has been waited for
	err   error         // of Wait
	said  []string      // lines that were read as events
	ahead *event        // was read before its turn

	mu     sync.Mutex
	stderr bytes.Buffer
}

// start starts a program. A name without a directory is one that this package has built. The end of the test kills it.
func start(t *testing.T, env []string, name string, args ...string) *program {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(built, name)
	}
	p := &program{t: t, cmd: exec.Command(name, args...), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		defer close(p.lines)
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			p.lines <- scanner.Text()
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		for range p.lines { // so that its end is not held up
		}
		<-p.ended
		if t.Failed() {
			t.Logf("stderr of %s %s:\n%s", name, strings.Join(args, " "), p.errors())
		}
	})
	return p
}

// Write collects the program's stderr.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *program) errors() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// next returns the next line of stdout. ok is false at its end.
func (p *program) next() (line string, ok bool) {
	p.t.Helper()
	select {
	case line, ok = <-p.lines:
		return line, ok
	case <-time.After(maxWait):
		p.t.Fatalf("%s wrote nothing for %s", p.cmd.Args, maxWait)
		return "", false
	}
}

// rest returns all lines until the program ends.
func (p *program) rest() []string {
	p.t.Helper()
	var all []string
	for {
		line, ok := p.next()
		if !ok {
			return all
		}
		all = append(all, line)
	}
}

// signal sends a signal.
func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// status waits for the program's end and returns its exit status, or -1 if a signal ended it.
func (p *program) status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(maxWait):
		p.t.Fatalf("%s does not end within %s", p.cmd.Args, maxWait)
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatal(p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}
