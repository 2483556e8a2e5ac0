package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// meterVerb is the first argument of this program if go test starts it instead of a test binary (go test -exec).
const meterVerb = "meter"

// meterMark begins the line in which the meter reports the CPU time of a package's tests.
const meterMark = "suites: CPU "

// meter runs a test binary and adds a line to its output: its CPU time, including that of all processes that it started
// and waited for, such as its own brokers. go test itself reports only the elapsed time.
//
// The meter survives signals, so that it can report. A signal that ends a run goes to the whole process group. The
// tests receive it, too, so the meter does not forward it. Only SIGQUIT goes to the meter alone: go test sends it to
// the process that it started, for a stack trace, when that has run for too long.
func meter(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // Signals end it, not a context.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Not ignored, because the tests would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	overdue := make(chan os.Signal, 1)
	signal.Notify(overdue, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "suites: running %s: %v\n", argv[0], err)
		return 127
	}
	go func() {
		for s := range overdue {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err := cmd.Wait()
	fmt.Printf("%s%.1f\n", meterMark, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	default: // a signal
		fmt.Fprintf(os.Stderr, "suites: %s: %v\n", argv[0], err)
		return 1
	}
}

// cpuOf parses the meter's line.
func cpuOf(line string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(line, meterMark)
	if !ok {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return time.Duration(seconds * float64(time.Second)), err == nil
}
