//go:build unix

package brokers

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNotSuspendable is the error of Suspend for a broker that is not a child process of this one.
var ErrNotSuspendable = errors.New("that is for a broker that runs natively; see REDELIVER_TEST_WAY")

// suspender is a system that can suspend its broker.
type suspender interface{ signalAll(s syscall.Signal) error }

// Suspend stops the broker with SIGSTOP. Its connections stay open, and it does not answer until Resume or Kill.
func (b *Broker) Suspend() error { return b.signalAll("suspending", syscall.SIGSTOP) }

// Resume resumes a suspended broker. It has no effect on one that is not suspended.
func (b *Broker) Resume() error { return b.signalAll("resuming", syscall.SIGCONT) }

func (b *Broker) signalAll(doing string, s syscall.Signal) error {
	f, ok := b.sys.(suspender)
	if !ok {
		return fmt.Errorf("%s %s: %w", doing, b, ErrNotSuspendable)
	}
	if err := f.signalAll(s); err != nil {
		return fmt.Errorf("%s %s: %w", doing, b, err)
	}
	return nil
}

func (c *child) signalAll(s syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc.signalGroup(s)
}

// signalAll signals the node but not epmd, which only rabbitmqctl uses to find the node.
func (p *rabbitProcess) signalAll(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.signalGroup(s)
}

// signalGroup signals the process and its children, because a broker may be the child of a shell script.
func (p *process) signalGroup(s syscall.Signal) error {
	if !p.running() {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil {
		return fmt.Errorf("sending %s to process group %d: %w", s, p.cmd.Process.Pid, err)
	}
	return nil
}
