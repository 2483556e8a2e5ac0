package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// grace is how long the command may take to end after a signal, before it is killed.
const grace = 20 * time.Second

// command runs argv with this process's input and output and returns its exit status. It forwards signals to the
// command.
func command(argv, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // Signals end it, not a context.
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A command like "go test" does not forward SIGTERM to its tests, so the signal goes to a process group. At a
	// terminal the command stays in this process's group: it may read, and Ctrl-C reaches the whole group anyway.
	group := !terminal(os.Stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("running %s: %w", argv[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	send := func(s syscall.Signal) {
		if group {
			_ = syscall.Kill(-cmd.Process.Pid, s)
		} else if s != syscall.SIGINT {
			_ = cmd.Process.Signal(s)
		}
	}
	var tooLate <-chan time.Time
	for {
		select {
		case s := <-signals:
			if tooLate == nil {
				tooLate = time.After(grace)
			}
			if s, ok := s.(syscall.Signal); ok {
				send(s)
			}
		case <-tooLate:
			send(syscall.SIGKILL)
		case err := <-ended:
			return status(err)
		}
	}
}

// status converts the result of Wait into an exit status, as a shell does.
func status(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	default:
		return exitFailed, fmt.Errorf("waiting for the command: %w", err)
	}
}

// terminal reports whether f is a terminal: a character device, but not the null device.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
