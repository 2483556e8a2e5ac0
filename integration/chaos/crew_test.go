package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
)

// crew are the consumers of a run. Each has a post that is filled again when it is killed.
type crew struct {
	t   *testing.T
	dir string

	mu    sync.Mutex
	posts []*post
	over  bool
}

// post is a place in a group.
type post struct {
	config  consumerConfig
	started int
	now     *member
}

// member is a consumer process.
type member struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   string
	ended chan struct{}
	err   error // how it ended, from then on
	asked bool  // to end, or was killed; under the crew's lock
}

// man fills so many posts with consumers of that configuration.
func (c *crew) man(cfg consumerConfig, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		c.posts = append(c.posts, &post{config: cfg})
		c.fill(len(c.posts) - 1)
	}
}

// fill starts a consumer. The lock is held.
func (c *crew) fill(i int) {
	if c.over {
		return
	}
	p := c.posts[i]
	p.started++
	cfg := p.config
	cfg.Name = fmt.Sprintf("consumer-%d.%d", i+1, p.started)
	m, err := startMember(cfg, filepath.Join(c.dir, cfg.Name+".log"))
	if err != nil {
		c.t.Error(err)
		return
	}
	p.now = m
	go func() {
		<-m.ended
		c.mu.Lock()
		defer c.mu.Unlock()
		if !m.asked {
			c.t.Errorf("%s ended by itself: %v; it said:\n%s", m.name, m.err, m.said())
		}
	}()
}

func startMember(cfg consumerConfig, logged string) (*member, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(logged)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envConsumer+"="+string(text))
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe() // it ends with us: then the consumer does, too
	if err != nil {
		return nil, err
	}
	m := &member{name: cfg.Name, cmd: cmd, stdin: stdin, log: logged, ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", m.name, err)
	}
	go func() {
		m.err = cmd.Wait()
		close(m.ended)
	}()
	return m, nil
}

// at is who has a post now.
func (c *crew) at(i int) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.posts[i].now
}

// dismiss ends a consumer by a signal and waits until it is gone. What takes too long is killed, and an error.
func (c *crew) dismiss(m *member, how syscall.Signal) error {
	c.mu.Lock()
	m.asked = true
	c.mu.Unlock()
	_ = m.cmd.Process.Signal(how) // it may be gone
	select {
	case <-m.ended:
		return nil
	case <-time.After(time.Minute):
		_ = m.cmd.Process.Signal(syscall.SIGQUIT) // it says where it stands
		select {
		case <-m.ended:
		case <-time.After(10 * time.Second):
			_ = m.cmd.Process.Kill()
		}
		return fmt.Errorf("%s did not end within a minute of %s; it said:\n%s", m.name, how, m.said())
	}
}

// lane are the faults of processes.
func (c *crew) lane() lane {
	n := len(c.posts)
	gone := func(name string, how syscall.Signal) kind {
		return kind{name, n, func(_ context.Context, s step) (func(context.Context) error, error) {
			err := c.dismiss(c.at(s.target), how)
			return func(context.Context) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.fill(s.target)
				return nil
			}, err
		}}
	}
	clock := func(name string, sign int) kind {
		return kind{name, n, func(_ context.Context, s step) (func(context.Context) error, error) {
			m := c.at(s.target)
			set := func(seconds int) { _, _ = fmt.Fprintf(m.stdin, "clock %d\n", seconds) }
			set(sign * (1 + s.size/12))
			return func(context.Context) error { set(0); return nil }, nil
		}}
	}
	return lane{"consumer", []kind{
		gone("SIGKILL", syscall.SIGKILL),
		gone("SIGTERM", syscall.SIGTERM),
		{"SIGSTOP", n, func(_ context.Context, s step) (func(context.Context) error, error) {
			m := c.at(s.target)
			return func(context.Context) error { return m.cmd.Process.Signal(syscall.SIGCONT) }, m.cmd.Process.Signal(syscall.SIGSTOP)
		}},
		clock("clock ahead", 1),
		clock("clock behind", -1),
	}, 0}
}

// end ends all consumers in order.
func (c *crew) end() error {
	c.mu.Lock()
	c.over = true
	var left []*member
	for _, p := range c.posts {
		if p.now != nil {
			left = append(left, p.now)
		}
	}
	c.mu.Unlock()
	var do []func(context.Context) error
	for _, m := range left {
		do = append(do, func(context.Context) error {
			if err := c.dismiss(m, syscall.SIGTERM); err != nil {
				return err
			}
			var exit *exec.ExitError
			if errors.As(m.err, &exit) && exit.ExitCode() > 0 {
				return fmt.Errorf("%s ended with %w; it said:\n%s", m.name, m.err, m.said())
			}
			return nil
		})
	}
	return all(context.Background(), do)
}

// dump has every consumer write down where its goroutines stand, and die of it.
func (c *crew) dump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for _, p := range c.posts {
		p.now.asked = true
		_ = p.now.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.now.cmd.Process.Signal(syscall.SIGQUIT)
	}
}

// said is the end of what the consumer wrote about itself.
func (m *member) said() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}

// group is what a load's consumers are called together.
func group(load history.Load) string { return "g." + load.Name }
