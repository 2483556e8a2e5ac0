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
	marked bool // for death; guarded by the lock of chaos
	mayEnd atomic.Bool
	peak   int64 // maximum memory in bytes, from terminate on; 0 if unknown
}

// startWorker starts this test binary as a consumer.
func startWorker(cfg consumerConfig, number int) (*worker, error) {
	p, err := consumer.Start(envConsumer, cfg, strings.TrimSuffix(cfg.Journal, ".journal")+".stderr")
	if err != nil {
		return nil, err
	}
	return &worker{Process: p, number: number, began: time.Now()}, nil
}

func (w *worker) order(o order) { w.Send(o.String()) }

// kill kills the process, if it has not ended.
func (w *worker) kill() { _ = w.Signal(syscall.SIGKILL) }

func (w *worker) terminate() {
	w.peak = max(w.peak, peakMemory(w.PID()))
	_ = w.Signal(syscall.SIGTERM) // await reports how it ended
}

var errAlive = errors.New("it is still alive")

// await waits for the end of the worker. It returns nil after a graceful end, consumer.ErrKilled, or another error,
// which is errAlive after the limit.
func (w *worker) await(limit time.Duration) error {
	select {
	case <-w.Ended():
		return w.Err()
	case <-time.After(limit):
		return errAlive
	}
}
