package loss

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// worker is a consumer process.
type worker struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	log    string
	began  time.Time
	ended  chan struct{}
	err    error // how it ended, from then on
	marked bool  // for death; chaos's, under its lock
	mayEnd atomic.Bool
	peak   int64 // bytes of memory that it had at most, from terminate on; 0 where nobody knows
}

// startWorker starts this test binary as a consumer.
func startWorker(cfg consumerConfig, number int) (*worker, error) {
	text, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(strings.TrimSuffix(cfg.Journal, ".journal") + ".stderr")
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
	w := &worker{number: number, cmd: cmd, stdin: stdin, log: log.Name(), began: time.Now(), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting consumer %d: %w", number, err)
	}
	go func() {
		err := cmd.Wait()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
			err = errKilled
		}
		w.err = err
		close(w.ended)
	}()
	return w, nil
}

func (w *worker) order(o order) { _, _ = fmt.Fprintln(w.stdin, o) } // a dead one needs no order

func (w *worker) kill() { _ = w.cmd.Process.Kill() }

func (w *worker) terminate() {
	w.peak = max(w.peak, peakMemory(w.cmd.Process.Pid))
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
}

var (
	errKilled = errors.New("it was killed")
	errAlive  = errors.New("it is still alive")
)

// await returns how the worker ended: nil in order, errKilled, or another error; errAlive when it did not in time.
func (w *worker) await(limit time.Duration) error {
	select {
	case <-w.ended:
		return w.err
	case <-time.After(limit):
		return errAlive
	}
}

// said is the end of what the consumer wrote about itself.
func (w *worker) said() string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
