package brokers

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// limitFiles bounds the size of each file of the process, in bytes.
func (c *child) limitFiles(most uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.proc.running() {
		return errors.New("it does not run")
	}
	// Keep the hard limit, so that it does not apply to the next start.
	limit := unix.Rlimit{Cur: most, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(c.proc.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return fmt.Errorf("setting RLIMIT_FSIZE of process %d: %w", c.proc.cmd.Process.Pid, err)
	}
	return nil
}
