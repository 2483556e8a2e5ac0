//go:build unix

package brokers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child process that ends at the latest with this one.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // the reason; valid after done is closed
}

// startProcess starts cmd in its own process group, so that a Ctrl-C at the terminal reaches the tests but not the
// broker, which is then stopped gracefully.
func startProcess(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the *thread* that created the child ends. Keep that thread
		// until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		if p.err == nil {
			p.err = errors.New("exit status 0")
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// running reports whether the process is running. It is false for a nil process.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// cpu returns the processor time of the process and of the children that it waited for, or 0 while it runs.
func (p *process) cpu() time.Duration {
	if p == nil || p.running() {
		return 0
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// terminate sends SIGTERM, and kills the process if it has not ended after grace.
func (p *process) terminate(grace time.Duration) error {
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		return errors.Join(fmt.Errorf("%s did not end within %s of SIGTERM and was killed", p.cmd.Path, grace), p.kill())
	}
}

// kill sends SIGKILL and waits for the end. After that the ports are free.
func (p *process) kill() error {
	if !p.running() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (p *process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return fmt.Errorf("sending %s to %s (pid %d): %w", s, p.cmd.Path, p.cmd.Process.Pid, err)
}
