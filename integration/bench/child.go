package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// childCommand is the hidden subcommand under which this program runs one side of one run.
const childCommand = "side-of-a-run"

// spec describes a child's work. It comes as JSON on standard input; the end of that input is a request to stop.
type spec struct {
	Job      job             `json:"job"`
	Side     side            `json:"side"`
	System   system          `json:"system"`
	Brokers  []string        `json:"brokers"`
	Topic    string          `json:"topic"`
	Group    string          `json:"group"`
	Instance string          `json:"instance,omitempty"` // static membership
	InFlight int             `json:"in_flight"`          // MaxInFlight of our side
	Messages int             `json:"messages"`           // the run ends when this many are settled; 0: when asked to stop
	Router   bool            `json:"router"`             // through Watermill's Router, else a plain loop
	Wait     time.Duration   `json:"wait"`
	Failing  failing         `json:"failing"`
	Backoff  backoffName     `json:"backoff"`
	Order    redeliver.Order `json:"order,omitempty"`
	Observed bool            `json:"observed,omitempty"` // with metrics and a tracer
	Warm     int             `json:"warm,omitempty"`     // the lateness of messages with a lower id does not count
	Backlog  int             `json:"backlog,omitempty"`  // the handler waits, and lateness counts, until only this many are left
	Native   nativeName      `json:"native,omitempty"`   // without Watermill
	Batch    batchSpec       `json:"batch"`
	Filtered bool            `json:"filtered,omitempty"` // of a replay: only those with the rare error
	Sample   time.Duration   `json:"sample"`             // how long the memory of an idle child is sampled
	Listen   string          `json:"listen,omitempty"`   // where an HTTP server listens
	Topics   []string        `json:"topics,omitempty"`   // of a console
	Entries  string          `json:"entries"`            // a file that outlives a SIGKILL, for what the handler saw
	Profile  string          `json:"profile"`            // the beginning of the profiles' file names
	Program  []string        `json:"-"`                  // instead of this program, for a side in another language
}

type (
	job         string
	side        string
	backoffName string
)

const (
	consume   job = "consume"   // handle messages until all are settled
	provision job = "provision" // only make the topics
	idle      job = "idle"      // consume, but nothing is due: measure memory
	posted    job = "posted"    // be the HTTP handler of a command that consumes

	ours      side = "ours"
	singles   side = "ours-without-batch"
	keyOrder  side = "ours-in-key-order"
	unordered side = "ours-unordered"
	unseen    side = "ours-unobserved"
	viaRouter side = "ours-router"
	byHand    side = "floor"
	share     side = "share" // adapters/kafkashare
	peer      side = "peer"

	second backoffName = "fixed 1 s"
	jitter backoffName = "1 s + jitter 0 to 1 s"
	hour   backoffName = "fixed 1 h"
	minute backoffName = "fixed 1 m"
	short  backoffName = "fixed 100 ms"
)

// failing selects the messages that fail: those whose id is divisible by Every (0: none), in their first Attempts
// attempts.
type failing struct {
	Every    int `json:"every"`
	Attempts int `json:"attempts"`
}

const (
	always  = 1 << 20
	retries = 3 // of every policy
)

// expected returns how often the handler has run, the number of dead letters, and their checksums when all messages of
// w have ended.
func (f failing) expected(w written) (entries, dead int, sum, deadSum uint64) {
	n, part := w.divisibleBy(f.Every)
	again := min(f.Attempts, retries)
	if f.Attempts > retries {
		dead, deadSum = n, part
	}
	return w.count + n*again, dead, w.sum + part*uint64(again), deadSum
}

// outcome is the measurement of a child.
type outcome struct {
	Count    int64     `json:"count"`     // messages settled
	Sum      uint64    `json:"sum"`       // checksum of what the handler saw, over all attempts
	Entries  int64     `json:"entries"`   // how often the handler ran
	Seconds  float64   `json:"seconds"`   // from the first message to the last that was settled
	Joined   float64   `json:"joined"`    // seconds from Subscribe to the first message
	FirstRun float64   `json:"first_run"` // seconds until all messages that succeed at once had succeeded
	CPU      float64   `json:"cpu"`       // seconds of user and system time from Subscribe to the last message
	Busy     float64   `json:"busy"`      // the same from the first message on
	PeakRSS  int64     `json:"peak_rss"`  // bytes, of the process's whole life
	Finished time.Time `json:"finished"`
	Settings string    `json:"settings"`           // of the client, in words
	Requests int64     `json:"requests,omitempty"` // to SQS, from Subscribe on
	Swapped  int64     `json:"swapped,omitempty"`  // messages of a key that ran first after a later one had, where a row checks it

	Late *lateness `json:"late,omitempty"` // of retries
	Lag  *lateness `json:"lag,omitempty"`  // from the write of a message to its first attempt
	Full *lateness `json:"full,omitempty"` // from the message that fills a batch to its function

	SteadyRSS int64 `json:"steady_rss,omitempty"` // median of the last third of an idle run
}

// line is a line of a child's standard output, a JSON value.
type line struct {
	Ready   bool     `json:"ready,omitempty"`
	Outcome *outcome `json:"outcome,omitempty"`
}

// childMain runs one side; it returns the exit status.
func childMain(stdin io.Reader, stdout, stderr io.Writer) int {
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, nil)))
	in := bufio.NewReader(stdin)
	var s spec
	text, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		fmt.Fprintln(stderr, "reading the spec:", err)
		return exitUsage
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	var mu sync.Mutex
	say := func(l line) {
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewEncoder(stdout).Encode(l); err != nil {
			fmt.Fprintln(stderr, "writing the outcome:", err)
		}
	}
	out, err := perform(ctx, s, func() { say(line{Ready: true}) })
	if err != nil {
		fmt.Fprintln(stderr, err)
		return exitFailed
	}
	say(line{Outcome: out})
	return 0
}

func perform(ctx context.Context, s spec, ready func()) (*outcome, error) {
	switch s.Job {
	case provision:
		return doProvision(ctx, s)
	case idle:
		return doIdle(ctx, s, ready)
	case posted:
		return doPosted(ctx, s, ready)
	case replayJob:
		return doReplay(ctx, s)
	case consoleJob:
		return doConsole(ctx, s, ready)
	default:
		return doConsume(ctx, s, ready)
	}
}

// startProfile writes a CPU profile and, at the end, the allocations, when the spec asks for them.
func (s spec) startProfile() (stop func(), err error) {
	if s.Profile == "" {
		return func() {}, nil
	}
	runtime.MemProfileRate = 64 << 10
	f, err := os.Create(s.Profile + ".cpu.pprof")
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
		if f, err := os.Create(s.Profile + ".allocs.pprof"); err == nil {
			_ = pprof.Lookup("allocs").WriteTo(f, 0)
			_ = f.Close()
		}
	}, nil
}

// process is a running child.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	ready   chan struct{}
	started time.Time
	done    chan struct{} // closed when outcome and err are set
	outcome *outcome
	err     error
}

// spawn starts a child. It ends on its own, with stop, or with kill.
func spawn(s spec) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := s.program(self)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr tail
	cmd.Stderr = &stderr
	p := &process{cmd: cmd, stdin: stdin, ready: make(chan struct{}), done: make(chan struct{}), started: time.Now()}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := stdin.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		var once sync.Once
		decode := json.NewDecoder(stdout)
		for {
			var l line
			if err := decode.Decode(&l); err != nil {
				break
			}
			if l.Ready {
				once.Do(func() { close(p.ready) })
			}
			if l.Outcome != nil {
				p.outcome = l.Outcome
			}
		}
		if err := cmd.Wait(); err != nil || p.outcome == nil {
			p.err = fmt.Errorf("%s of %s: %w\n%s", s.Side, s.Job, errors.Join(err, errNoOutcome), stderr.text())
		}
	}()
	return p, nil
}

var errNoOutcome = errors.New("it reported no outcome")

// stop asks the child to end.
func (p *process) stop() { _ = p.stdin.Close() }

// kill ends the child with SIGKILL and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// await returns what the child measured. It kills the child when the time is over or ctx ends, without asking it to
// stop.
func (p *process) await(ctx context.Context, within time.Duration) (*outcome, error) {
	defer p.stop()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.outcome, p.err
	case <-timer.C:
		p.kill()
		return nil, fmt.Errorf("not done within %s\n%w", within, p.err)
	case <-ctx.Done():
		p.kill()
		return nil, ctx.Err()
	}
}

// awaitReady returns when the child has its partitions.
func (p *process) awaitReady(ctx context.Context) error {
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		return fmt.Errorf("it ended before it was ready: %w", p.err)
	case <-timer.C:
		p.kill()
		return fmt.Errorf("it was not ready within 30 s: %w", p.err)
	case <-ctx.Done():
		p.kill()
		return ctx.Err()
	}
}

// profileName returns the path of a side's profiles of a run.
func (o options) profileName(row string, s side, run int) string {
	if o.profile == "" || run == 0 {
		return ""
	}
	return filepath.Join(o.profile, fmt.Sprintf("%s-%s-%d", row, s, run))
}

// tail keeps the end of what a child says on its standard error.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() > 1<<16 {
		t.buf.Reset()
	}
	return t.buf.Write(p)
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf.Bytes()
	return string(b[max(0, len(b)-4096):])
}
