package loss

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redeliver/redeliver/integration/consumer"
)

// worker is a consumer process.
type worker struct {
	*consumer.Process

	number int
	began  time.Time
	marked bool // for death; chaos's, under its lock
	mayEnd atomic.Bool
	peak   int64 // bytes of memory that it had at most, from terminate on; 0 where nobody knows
}

// startWorker starts this test binary as a consumer.
func startWorker(cfg consumerConfig, number int) (*worker, error) {
	p, err := consumer.Start(envConsumer, cfg, strings.TrimSuffix(cfg.Journal, ".journal")+".stderr")
	if err != nil {
		return nil, err
	}
	return &worker{Process: p, number: number, began: time.Now()}, nil
}

func (w *worker) order(o order) { w.Order(o.String()) }

// kill ends it at once, where it has not ended.
func (w *worker) kill() { _ = w.Signal(syscall.SIGKILL) }

func (w *worker) terminate() {
	w.peak = max(w.peak, peakMemory(w.PID()))
	_ = w.Signal(syscall.SIGTERM) // await tells how it has ended
}

var errAlive = errors.New("it is still alive")

// await returns how the worker ended: nil in order, consumer.ErrKilled, or another error; errAlive when it did not in time.
func (w *worker) await(limit time.Duration) error {
	select {
	case <-w.Ended():
		return w.Err()
	case <-time.After(limit):
		return errAlive
	}
}
