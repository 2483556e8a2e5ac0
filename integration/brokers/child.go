package brokers

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"time"
)

// child runs one broker as one child process, with its data in its work directory.
type child struct {
	work    *workDir
	command func() *exec.Cmd // returns a new one for each start; start sets its directory and output

	mu   sync.Mutex // start and kill may be concurrent when a context ends
	proc *process
	down bool          // we stopped or killed it while it ran
	cpus time.Duration // of earlier processes
}

func (c *child) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.proc.running() {
		return errors.New("it runs already")
	}
	log, err := c.work.openLog()
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own descriptor
	cmd := c.command()
	cmd.Dir = c.work.dir
	cmd.Stdout, cmd.Stderr = log, log
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	c.cpus += c.proc.cpu()
	c.proc, c.down = p, false
	return nil
}

func (c *child) cpu() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cpus + c.proc.cpu()
}

func (c *child) stop(bool) error { return c.stopWithin(30 * time.Second) }

func (c *child) stopWithin(grace time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = c.down || c.proc.running()
	return c.proc.terminate(grace)
}

func (c *child) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = c.down || c.proc.running()
	return c.proc.kill()
}

func (c *child) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || c.proc == nil || c.proc.running() {
		return nil
	}
	return c.proc.err
}

func (c *child) logTail() string { return c.work.logTail(40) }

func (c *child) remove(keepLog bool) (string, error) { return c.work.remove(keepLog) }
