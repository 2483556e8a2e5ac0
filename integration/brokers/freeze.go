//go:build unix

package brokers

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrNoFreeze is what Freeze returns for a broker that is no process of ours.
var ErrNoFreeze = errors.New("that is for a broker that runs natively; see REDELIVER_TEST_WAY")

// freezer is a system that can stop its broker in its tracks.
type freezer interface{ signalAll(s syscall.Signal) error }

// Freeze stops the broker with SIGSTOP: its connections stay and nothing answers, until Thaw or Kill.
func (b *Broker) Freeze() error { return b.signalAll("freezing", syscall.SIGSTOP) }

// Thaw lets a frozen broker go on. One that is not frozen is left alone.
func (b *Broker) Thaw() error { return b.signalAll("thawing", syscall.SIGCONT) }

func (b *Broker) signalAll(doing string, s syscall.Signal) error {
	f, ok := b.sys.(freezer)
	if !ok {
		return fmt.Errorf("%s %s: %w", doing, b, ErrNoFreeze)
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

// signalAll reaches the node; epmd, by which only rabbitmqctl finds it, goes on.
func (p *rabbitProcess) signalAll(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.node.signalGroup(s)
}

// signalGroup signals the process and all that it started: a broker may be a shell script's child.
func (p *process) signalGroup(s syscall.Signal) error {
	if !p.running() {
		return errors.New("it does not run")
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil {
		return fmt.Errorf("sending %s to process group %d: %w", s, p.cmd.Process.Pid, err)
	}
	return nil
}
