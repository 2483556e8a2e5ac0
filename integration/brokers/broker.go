package brokers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// system is one way to run one broker. A Broker calls one method at a time, except kill, which the end of a context may
// call at any moment.
type system interface {
	// start starts the broker on its previous data and addresses. It does not wait for readiness.
	start(ctx context.Context) error
	// stop ends the broker gracefully and keeps its data. After a timeout it kills the broker. forGood means that the
	// data is no longer needed, so a broker that is slow to end may be killed.
	stop(forGood bool) error
	// kill ends the broker with SIGKILL and keeps its data.
	kill() error
	// ended returns the reason why the broker is not running although nobody stopped it, or nil if it runs.
	ended() error
	// remove deletes data and log. If keepLog is set, it keeps a copy of the log and returns its path.
	remove(keepLog bool) (log string, err error)
	// logTail returns the last lines of the broker's log.
	logTail() string
}

// Broker is a broker that was started for a test, or that already existed. Its methods may be called concurrently.
type Broker struct {
	name    string // for people: "Apache Kafka 4.3.0 (native)"
	addrs   []string
	ready   func(ctx context.Context, addrs []string) error
	maxWait time.Duration // the maximum duration of a start
	logf    func(format string, args ...any)

	userAddrs []string // for a Kafka with users

	contextEnded atomic.Bool
	release      func() bool // detaches it from that context

	mu      sync.Mutex // serialises start, stop and restart
	sys     system
	stopped bool
	keepLog bool
}

// ErrStopped is returned by the methods of a Broker after Stop.
var ErrStopped = errors.New("broker is stopped for good")

// open starts the broker for the first time, waits until it answers, and ends it when ctx ends.
func open(ctx context.Context, b *Broker) (*Broker, error) {
	b.release = context.AfterFunc(ctx, func() {
		b.contextEnded.Store(true)
		_ = b.sys.kill()
	})
	if err := b.Start(ctx); err != nil {
		b.stopped = true
		b.release()
		return nil, errors.Join(err, b.sys.stop(true), b.remove(true))
	}
	return b, nil
}

// Addrs returns the addresses for a client. For Kafka it is host:port of each node.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// String describes the broker: its kind, version, way and addresses.
func (b *Broker) String() string { return fmt.Sprintf("%s at %v", b.name, b.addrs) }

// Start starts the broker again after Kill or Shutdown, on the same data and port, and waits until it answers.
func (b *Broker) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.startLocked(ctx)
}

func (b *Broker) startLocked(ctx context.Context) error {
	if b.stopped {
		return fmt.Errorf("starting %s: %w", b, ErrStopped)
	}
	if err := b.sys.start(ctx); err != nil {
		return fmt.Errorf("starting %s: %w", b, err)
	}
	if b.contextEnded.Load() { // its context may have ended just before the start
		return errors.Join(fmt.Errorf("starting %s: the context it lives in has ended", b), b.sys.kill())
	}
	return b.WaitReady(ctx)
}

// Shutdown ends the broker gracefully and keeps its data for Start.
func (b *Broker) Shutdown() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shutdownLocked()
}

func (b *Broker) shutdownLocked() error {
	if b.stopped {
		return fmt.Errorf("shutting down %s: %w", b, ErrStopped)
	}
	if err := b.sys.stop(false); err != nil {
		return fmt.Errorf("shutting down %s: %w", b, err)
	}
	return nil
}

// Kill ends the broker with SIGKILL, without a clean shutdown, and keeps its data for Start.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return fmt.Errorf("killing %s: %w", b, ErrStopped)
	}
	if err := b.sys.kill(); err != nil {
		return fmt.Errorf("killing %s: %w", b, err)
	}
	return nil
}

// Restart calls Shutdown and Start.
func (b *Broker) Restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g, ok := b.sys.(*given); ok { // only its operator can restart it
		if err := g.restart(ctx); err != nil {
			return err
		}
		return b.WaitReady(ctx)
	}
	if err := b.shutdownLocked(); err != nil {
		return err
	}
	return b.startLocked(ctx)
}

// Stop ends the broker for good and removes its data. It returns an error if the broker had ended before, because the
// test then did not test what it claims. A second Stop does nothing.
func (b *Broker) Stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	b.stopped = true
	b.release()
	early := b.sys.ended()
	if early != nil {
		early = fmt.Errorf("%s ended before it was stopped: %w; the end of its log:\n%s", b, early, b.sys.logTail())
	}
	return errors.Join(early, b.sys.stop(true), b.remove(b.keepLog || early != nil))
}

func (b *Broker) remove(keepLog bool) error {
	log, err := b.sys.remove(keepLog)
	if log != "" {
		b.logf("the whole log of %s is kept in %s", b, log)
	}
	return err
}

// KeepLog makes Stop keep the broker's log. Call it when a test fails.
func (b *Broker) KeepLog() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keepLog = true
}

// CPU returns the processor time of a native broker up to its latest end, or 0 for any other broker.
func (b *Broker) CPU() time.Duration {
	if s, ok := b.sys.(interface{ cpu() time.Duration }); ok {
		return s.cpu()
	}
	return 0
}

// LogTail returns the last lines of the broker's log.
func (b *Broker) LogTail() string { return b.sys.logTail() }

// WaitReady waits until the broker answers a client, until it ends, or until the earlier of two deadlines: that of ctx,
// and KafkaOptions.StartTimeout from now.
func (b *Broker) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.maxWait)
	defer cancel()
	began := time.Now()
	var last error
	for {
		if b.contextEnded.Load() {
			return fmt.Errorf("waiting for %s: the context it lives in has ended", b)
		}
		if err := b.sys.ended(); err != nil {
			return fmt.Errorf("%s ended while it started: %w; the end of its log:\n%s", b, err, b.sys.logTail())
		}
		if last = b.try(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer within %s: %w; the end of its log:\n%s",
				b, time.Since(began).Round(time.Millisecond), last, b.sys.logTail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// try asks the broker once, with a timeout of its own: a broker that accepts the connection and sends nothing must not
// use up the whole maxWait.
func (b *Broker) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return b.ready(ctx, b.addrs)
}
