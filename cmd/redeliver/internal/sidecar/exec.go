package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// Exec is a handler that runs a command for each message. The body is its standard input, and its exit status is the
// answer.
type Exec struct {
	argv   []string
	env    []string // of every child
	onLine func(id, line string)
	// statuses replaces the meaning of single exit statuses.
	statuses Statuses
	// grace is how long a child may take to end after its timeout. Together with the following steps, it is shorter
	// than the time after which a handler counts as stuck.
	grace time.Duration
	// pipes is how long processes that a child has left behind may keep its output open.
	pipes time.Duration
	// reaper is nil except in the first process of a container.
	reaper *reaper
}

// NewExec returns a handler that runs a program with its arguments, without a shell. env is the environment of every
// child, from which REDELIVER_ variables are removed. onLine is called with each line of the children's output and the
// id of the message. It must be safe for concurrent use. statuses replaces the meaning of single exit statuses.
func NewExec(argv, env []string, statuses Statuses, onLine func(id, line string)) (*Exec, error) {
	if !groups {
		return nil, errors.New("commands as handlers are not supported on this system: use --http")
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, err
	}
	e := &Exec{
		argv: append([]string{path}, argv[1:]...), env: withoutOurs(env), onLine: onLine, statuses: statuses,
		grace: 500 * time.Millisecond, pipes: 750 * time.Millisecond,
	}
	if os.Getpid() == 1 {
		e.reaper = newReaper()
	}
	return e, nil
}

// ExitError reports that a child has not handled its message.
type ExitError struct {
	How  string // "exit status 75", "signal: killed"
	Text string // the end of its standard error
	// Unreachable says that the program does not seem to be there: a shell, or another program before it, could not run it.
	Unreachable bool
}

func (e *ExitError) Error() string {
	if e.Text == "" {
		return e.How
	}
	return e.How + ": " + e.Text
}

// Handle implements [Handler].
func (e *Exec) Handle(ctx context.Context, m *Message) error {
	env, rest := environment(m)
	cmd := exec.CommandContext(ctx, e.argv[0], e.argv[1:]...)
	cmd.Env = slices.Concat(e.env, env)
	cmd.Stdin = bytes.NewReader(m.Body)
	said := newOutput(func(line string) { e.onLine(m.State.ID, line) })
	out, errs := said.stream(0), said.stream(maxText*2)
	cmd.Stdout, cmd.Stderr = out, errs
	ownGroup(cmd)
	var killing *time.Timer
	cmd.Cancel = func() error {
		killing = time.AfterFunc(e.grace, func() { killGroup(cmd.Process.Pid) })
		return endGroup(cmd.Process.Pid)
	}
	cmd.WaitDelay = e.pipes
	extra, err := passData(cmd, rest)
	over := func() {}
	if err == nil {
		over, err = e.reaper.begin(cmd)
		extra.started()
	}
	if err != nil {
		extra.end()
		return &UnreachedError{fmt.Errorf("starting the command: %w", err)}
	}
	err = cmd.Wait()
	over()
	extra.end()
	said.end(out, errs)
	if ctx.Err() != nil {
		if killing != nil {
			killing.Stop()
			killGroup(cmd.Process.Pid) // ends processes that the child has started
		}
		return context.Cause(ctx)
	}
	return e.errorOfExit(cmd.ProcessState, err, lastWords(errs.tail))
}

// errorOfExit returns the meaning of a child's exit status for its message. A child may leave processes running.
func (e *Exec) errorOfExit(state *os.ProcessState, err error, text string) error {
	if state == nil {
		return fmt.Errorf("waiting for the command: %w", err)
	}
	failed := &ExitError{How: state.String(), Text: text}
	switch e.statuses.ofCommand(state.ExitCode()) {
	case Ack:
		return nil
	case Reject:
		return redeliver.Permanent(failed)
	case Unreachable:
		failed.Unreachable = true
	case Retry:
	}
	return failed
}

// extraInput is the data that a child may read from descriptor 3.
type extraInput struct {
	read, write *os.File
	text        []byte
	done        chan struct{} // closed when all is written, or the child no longer reads
}

// passData gives a child data to read from descriptor 3.
func passData(cmd *exec.Cmd, text []byte) (*extraInput, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return &extraInput{}, err
	}
	cmd.ExtraFiles = []*os.File{r}
	return &extraInput{r, w, text, make(chan struct{})}, nil
}

// started starts to write once the child has the read end. A child need not read the data.
func (b *extraInput) started() {
	_ = b.read.Close()
	go func() {
		defer close(b.done)
		_, _ = b.write.Write(b.text)
		_ = b.write.Close()
	}()
}

// end ends a write that the child does not read.
func (b *extraInput) end() {
	if b.write != nil {
		_ = b.write.Close()
		<-b.done
	}
}
