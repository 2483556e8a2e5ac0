package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// heard collects the output of children.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) add(id, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, id+" "+line)
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

func startExec(t *testing.T, what string, args ...string) (*Exec, *heard) {
	t.Helper()
	said := &heard{}
	e, err := NewExec(append([]string{os.Args[0]}, args...), append(os.Environ(), asChild+"="+what), nil, said.add)
	if err != nil {
		t.Fatal(err)
	}
	return e, said
}

func TestExecAnswers(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		0: "", 1: "exit status 1: the bank is closed", 64: "exit status 64: the bank is closed", 65: "permanent exit status 65: the bank is closed",
		75: "exit status 75: the bank is closed", 78: "exit status 78: the bank is closed", 255: "exit status 255: the bank is closed",
	} {
		e, said := startExec(t, "exit", strconv.Itoa(status))
		err := e.Handle(t.Context(), newMessage())
		got := ""
		if err != nil {
			got = inWords(err)
		}
		if got != want {
			t.Errorf("%d is %q, want %q", status, got, want)
		}
		lines := said.all()
		slices.Sort(lines)
		if want := []string{"orders/0/17  is closed", "orders/0/17 on stdout", "orders/0/17 the bank"}; !slices.Equal(lines, want) {
			t.Errorf("it says %q", lines)
		}
	}
}

// A wrapper that cannot run its command ends with 126 or 127. A status may be given another meaning.
func TestExecWithoutItsCommand(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		argv     []string
		statuses Statuses
		want     string // ack, reject, unreachable or retry
	}{
		{[]string{"env", "/no-such-program"}, nil, "unreachable"},
		{[]string{"nice", plain}, nil, "unreachable"},
		{[]string{"sh", "-c", "/no-such-program"}, nil, "unreachable"},
		{[]string{"sh", "-c", "exit 125"}, nil, "retry"},
		{[]string{"sh", "-c", "kill -9 $$"}, nil, "retry"},
		{[]string{"sh", "-c", "exit 127"}, Statuses{127: Retry}, "retry"},
		{[]string{"sh", "-c", "exit 3"}, Statuses{3: Reject}, "reject"},
		{[]string{"sh", "-c", "exit 3"}, Statuses{3: Ack}, "ack"},
		{[]string{"sh", "-c", "exit 3"}, Statuses{3: Unreachable}, "unreachable"},
	} {
		e, err := NewExec(c.argv, os.Environ(), c.statuses, func(string, string) {})
		if err != nil {
			t.Fatal(err)
		}
		got := "retry"
		switch err := e.Handle(t.Context(), newMessage()); {
		case err == nil:
			got = "ack"
		case errors.Is(err, redeliver.ErrPermanent):
			got = "reject"
		case Classify(err).Unreachable:
			got = "unreachable"
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.argv, got, c.want)
		}
	}
}

// A child need not read the body, however long it is.
func TestExecNeedNotReadItsInput(t *testing.T) {
	t.Parallel()
	e, _ := startExec(t, "exit", "0")
	m := newMessage()
	m.Body = make([]byte, 10<<20)
	for range 500 {
		m.Headers = append(m.Headers, Header{"h", strings.Repeat("x", 1000)}) // nor descriptor 3
	}
	if err := e.Handle(t.Context(), m); err != nil {
		t.Error(err)
	}
}

// The output of a child is limited, and its end is in the error.
func TestExecLimitsTheOutput(t *testing.T) {
	t.Parallel()
	e, said := startExec(t, "flood")
	err := e.Handle(t.Context(), newMessage())
	if err == nil || !strings.HasSuffix(err.Error(), "x the end") || len(err.Error()) > maxText+50 {
		t.Errorf("%.1000v", err)
	}
	size := 0
	lines := said.all()
	for _, l := range lines {
		size += len(l)
		if len(l) > maxLine+100 {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	if last := lines[len(lines)-1]; size > 2*maxOutput || !strings.HasSuffix(last, "more bytes)") {
		t.Errorf("%d bytes were passed on, the last %q", size, last)
	}
}

// A line that exceeds the limit becomes several.
func TestOutputCutsLines(t *testing.T) {
	var lines []string
	o := newOutput(func(line string) { lines = append(lines, line) })
	s := o.stream(5)
	for _, text := range []string{"a", "b\nc\n\n", strings.Repeat("x", maxLine+1), "\nend"} {
		_, _ = io.WriteString(s, text)
	}
	o.end(s)
	if want := []string{"ab", "c", "", strings.Repeat("x", maxLine), "x", "end"}; !slices.Equal(lines, want) || string(s.tail) != "x\nend" {
		t.Errorf("%.200q, %q", lines, s.tail)
	}
}

// await waits for a file that a child writes.
func await(t *testing.T, path string) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for {
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s was not written within %s", path, maxWait)
		}
	}
}

// gone waits until a process does not exist.
func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for {
		// A zombie counts as gone: its parent has ended, so init will wait for it.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// A child that exceeds its time is killed with all that it has started, even if they ignore signals.
func TestExecKillsAHangingChildWithItsGroup(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"hang", "lead", "quiet"} {
		path := filepath.Join(t.TempDir(), "pids")
		e, _ := startExec(t, what, path)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Handle(ctx, newMessage()) }()
		var pid, leaf int
		if _, err := fmt.Sscan(await(t, path), &pid, &leaf); err != nil {
			t.Fatal(err)
		}
		cancel(&redeliver.TimeoutError{After: time.Minute})
		if err := <-done; !errors.Is(err, redeliver.ErrTimeout) {
			t.Errorf("%s: %v", what, err)
		}
		gone(t, pid)
		gone(t, leaf)
	}
}

// A child first receives SIGTERM.
func TestExecSendsSIGTERMFirst(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "there")
	e, _ := startExec(t, "obey", path)
	e.grace, e.pipes = maxWait, maxWait // it obeys, even if the signal is late
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Handle(ctx, newMessage()) }()
	await(t, path)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path + ".obeyed"); err != nil {
		t.Error(err)
	}
}

// A process that a child leaves behind does not delay the answer.
func TestExecDoesNotWaitForProcessesLeftBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	e, _ := startExec(t, "leave", path)
	if err := e.Handle(t.Context(), newMessage()); err != nil {
		t.Error(err)
	}
	var child, left int
	if _, err := fmt.Sscan(await(t, path), &child, &left); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(left, syscall.SIGKILL); err != nil {
		t.Errorf("it is not left running: %v", err)
	}
}

// A command that cannot be started has not received its message. A command that does not exist is not a handler.
func TestExecCannotStart(t *testing.T) {
	t.Parallel()
	if _, err := NewExec([]string{"no-such-command"}, nil, nil, nil); err == nil {
		t.Error("there is no such command")
	}
	path := filepath.Join(t.TempDir(), "command")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := NewExec([]string{path}, nil, nil, func(string, string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	err = e.Handle(t.Context(), newMessage())
	if _, unreached := errors.AsType[*UnreachedError](err); !unreached {
		t.Errorf("%v", err)
	}
}
