//go:build prove

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
)

// processes are the consumers of a run. Each has a slot, which gets a new consumer when the old one is killed.
type processes struct {
	t   *testing.T
	dir string

	mu    sync.Mutex
	slots []*slot
	ended bool // no consumer may start any more
}

// slot is a place in a group.
type slot struct {
	config  consumerConfig
	started int
	current *member
}

// member is a consumer process.
type member struct {
	*consumer.Process

	name  string
	asked bool // it was asked to end, or killed; guarded by the lock of processes
}

// startAll starts n slots with consumers of that configuration.
func (c *processes) startAll(cfg consumerConfig, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.slots = append(c.slots, &slot{config: cfg})
		c.startLocked(len(c.slots) - 1)
	}
}

// startLocked starts a consumer in a slot, unless the run has ended.
func (c *processes) startLocked(i int) {
	if c.ended {
		return
	}
	p := c.slots[i]
	p.started++
	cfg := p.config
	cfg.Name = fmt.Sprintf("consumer-%d.%d", i+1, p.started)
	process, err := consumer.Start(envConsumer, cfg, filepath.Join(c.dir, cfg.Name+".log"))
	if err != nil {
		c.t.Errorf("starting %s: %v", cfg.Name, err)
		return
	}
	m := &member{Process: process, name: cfg.Name}
	p.current = m
	go func() {
		<-m.Ended()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !m.asked {
			c.t.Errorf("%s ended unexpectedly: %v; its output:\n%s", m.name, m.Err(), m.Output())
		}
	}()
}

// at returns the present consumer of a slot.
func (c *processes) at(i int) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[i].current
}

// stop ends a consumer by a signal and waits until it has ended. It kills a consumer that takes too long, and
// returns an error.
func (c *processes) stop(m *member, how syscall.Signal) error {
	c.mu.Lock()
	m.asked = true
	c.mu.Unlock()
	_ = m.Signal(how) // it may have ended
	select {
	case <-m.Ended():
		return nil
	case <-time.After(3 * time.Minute):
		_ = m.Signal(syscall.SIGQUIT) // it prints its goroutines
		select {
		case <-m.Ended():
		case <-time.After(10 * time.Second):
			_ = m.Signal(syscall.SIGKILL)
		}
		return fmt.Errorf("%s did not end within 3 minutes of %s; its output:\n%s", m.name, how, m.Output())
	}
}

// lane returns the faults of processes.
func (c *processes) lane() lane {
	n := len(c.slots)
	stopped := func(name string, how syscall.Signal) kind {
		return kind{name, n, func(_ context.Context, s step) (func(context.Context) error, error) {
			err := c.stop(c.at(s.target), how)
			return func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.startLocked(s.target)
				return nil
			}, err
		}}
	}
	wrongClock := func(name string, sign int) kind {
		return kind{name, n, func(_ context.Context, s step) (func(context.Context) error, error) {
			m := c.at(s.target)
			set := func(seconds int) { m.Send(fmt.Sprintf("clock %d", seconds)) }
			set(sign * (1 + s.size/12))
			return func(context.Context) error { set(0); return nil }, nil
		}}
	}
	return lane{"consumer", []kind{
		stopped("SIGKILL", syscall.SIGKILL),
		stopped("SIGTERM", syscall.SIGTERM),
		{"SIGSTOP", n, func(_ context.Context, s step) (func(context.Context) error, error) {
			m := c.at(s.target)
			if err := m.Signal(syscall.SIGSTOP); err != nil { // it has ended, so this is no fault
				return nil, err
			}
			return func(context.Context) error { return m.Signal(syscall.SIGCONT) }, nil
		}},
		wrongClock("clock ahead", 1),
		wrongClock("clock behind", -1),
	}, 0}
}

// end ends all consumers gracefully.
func (c *processes) end() error {
	c.mu.Lock()
	c.ended = true
	var left []*member
	for _, p := range c.slots {
		if p.current != nil {
			left = append(left, p.current)
		}
	}
	c.mu.Unlock()
	var do []func(context.Context) error
	for _, m := range left {
		do = append(do, func(context.Context) error {
			if err := c.stop(m, syscall.SIGTERM); err != nil {
				return err
			}
			var exit *exec.ExitError
			if errors.As(m.Err(), &exit) && exit.ExitCode() > 0 {
				return fmt.Errorf("%s ended with %w; its output:\n%s", m.name, m.Err(), m.Output())
			}
			return nil
		})
	}
	return all(context.Background(), do)
}

// dump makes every consumer print its goroutines and die.
func (c *processes) dump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, p := range c.slots {
		p.current.asked = true
		_ = p.current.Signal(syscall.SIGCONT) // it may have ended
		_ = p.current.Signal(syscall.SIGQUIT)
	}
}

// group returns the name of the group of a load's consumers.
func group(load history.Load) string { return "g." + load.Name }
