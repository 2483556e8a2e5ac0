// Package consumer runs consumers of tests as separate processes, so that they can be killed. Each is the test binary,
// started again. The parent starts them, sends them commands and ends them. The child reads its configuration, waits for
// its broker, and handles messages until it is asked to end.
package consumer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// ErrKilled is the result of a process that SIGKILL ended.
var ErrKilled = errors.New("it was killed")

// Process is the parent's handle of a consumer. Its methods are safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string
	ended chan struct{}
	err   error
}

// Start starts this binary again, with cfg in the variable env, for [Main]. Its output goes to the file log.
func Start(env string, cfg any, log string) (*Process, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of a consumer: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this binary: %w", err)
	}
	said, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer said.Close()        // the child has its own descriptor
	cmd := exec.Command(self) //nolint:noctx // it ends by a signal, or with its stdin
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stdout, cmd.Stderr = said, said
	stdin, err := cmd.StdinPipe() // it ends with us: see Obey
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin, log: log, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a consumer: %w", err)
	}
	go func() {
		p.err = cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			p.err = ErrKilled
		}
		close(p.ended)
	}()
	return p, nil
}

// Send sends a line to [ReadCommands]. It does nothing if the process has ended.
func (p *Process) Send(line string) { _, _ = fmt.Fprintln(p.stdin, line) }

// Signal sends a signal. It returns an error if the process has ended.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to process %d: %w", s, p.PID(), err)
	}
	return nil
}

// End sends a signal to a process that may have ended, and waits for its end.
func (p *Process) End(s syscall.Signal) {
	_ = p.Signal(s)
	<-p.ended
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err waits for the end of the process and returns its result, nil for exit status 0.
func (p *Process) Err() error {
	<-p.ended
	return p.err
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the last lines of the process's output.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
