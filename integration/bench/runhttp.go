package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runHTTPRow runs the built command between Kafka and a handler in another process.
func runHTTPRow(ctx context.Context, e *experiment) error {
	dir, err := os.MkdirTemp("", "redeliver-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command := filepath.Join(dir, "redeliver")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", command, "github.com/redeliver/redeliver/cmd/redeliver")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the command: %w\n%s", err, out)
	}
	n := e.scaled(100_000)
	e.notef("the handler reads each body, adds it to a checksum and answers 204; broker, command and handler share the cores")
	for run := range e.options.runs + 1 {
		if err := e.runHTTP(ctx, command, n, run); err != nil {
			return err
		}
	}
	return nil
}

func (e *experiment) runHTTP(ctx context.Context, command string, n, run int) (err error) {
	t, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t)) }()
	w, err := e.cluster.preload(ctx, t.topic, n)
	if err != nil {
		return err
	}
	sp := e.spec(ours, t, run, defaultInFlight)
	sp.Job, sp.Messages = posted, n
	if sp.Listen, err = freeAddress(ctx); err != nil {
		return err
	}
	handler, err := spawn(sp)
	if err != nil {
		return err
	}
	defer handler.kill()
	if err := handler.awaitReady(ctx); err != nil {
		return err
	}
	c, err := startRun(command, sp)
	if err != nil {
		return err
	}
	out, err := handler.await(ctx, 3*time.Minute)
	end, bad := c.end()
	if err = errors.Join(err, bad); err != nil {
		return fmt.Errorf("%w\n%s", err, c.stderr.text())
	}
	out.Settings = "redeliver run, defaults, " + fmt.Sprintf("--concurrency %d", sp.InFlight)
	e.record(ours, run, out)
	if err := e.verify(ctx, sp, out, w); err != nil {
		e.problemf("run %d: %v", run, err)
		return nil
	}
	per := 100_000 / float64(n)
	e.sayf("run %d: %.0f msg/s, CPU s per 100,000: command %.2f, handler %.2f, peak %.0f MiB", run, float64(n)/out.Seconds, end.cpu*per, out.CPU*per, mib(end.peak))
	if run == 0 {
		return nil
	}
	e.add("redeliver run", "msg/s", atLeast(10_000), float64(n)/out.Seconds)
	e.add("CPU per 100,000, command", "s", nil, end.cpu*per)
	e.add("CPU per 100,000, handler", "s", nil, out.CPU*per)
	e.add("peak memory, command", "MiB", nil, mib(end.peak))
	return nil
}

// freeAddress returns an address that nobody uses.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// running is the command while it runs.
type running struct {
	cmd    *exec.Cmd
	stderr tail
}

// usage is the CPU time and memory of the command, including its start.
type usage struct {
	cpu  float64 // seconds
	peak int64   // bytes of resident memory
}

func startRun(command string, s spec) (*running, error) {
	c := &running{cmd: exec.Command(command, "run", "--broker", "kafka://"+strings.Join(s.Brokers, ","), "--topic", s.Topic, "--group", s.Group, "--concurrency", strconv.Itoa(s.InFlight), "--http", "http://"+s.Listen+"/")} //nolint:noctx // It ends gracefully, see end.
	c.cmd.Stderr = &c.stderr
	return c, c.cmd.Start()
}

// end makes the command commit settled messages and exit.
func (c *running) end() (usage, error) {
	s := usage{peak: peakOf(c.cmd.Process.Pid)}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return s, err
	}
	late := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	err := c.cmd.Wait()
	s.cpu = (c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()).Seconds()
	return s, err
}

// peakOf is another process's peak of resident memory.
func peakOf(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("VmHWM:"))
	var kb int64
	if _, err := fmt.Sscan(string(rest), &kb); err != nil {
		return 0
	}
	return kb << 10
}

// doPosted is a handler that answers at once.
func doPosted(ctx context.Context, s spec, ready func()) (*outcome, error) {
	stop, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	defer stop()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, err
	}
	m := newMeter(s.Messages)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m.enter(body)
		w.WriteHeader(http.StatusNoContent)
		m.settle()
	})}
	go func() { _ = server.Serve(l) }()
	ready()
	select {
	case <-m.done:
	case <-ctx.Done():
	}
	// The last answers are on their way.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return m.outcome(), server.Shutdown(closing)
}
