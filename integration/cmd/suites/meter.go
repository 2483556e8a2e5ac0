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

// meterVerb is the first argument of this program where go test starts it in place of a test binary (go test -exec).
const meterVerb = "meter"

// meterMark begins the line in which the meter tells how much CPU a package's tests took.
const meterMark = "suites: CPU "

// meter runs a test binary, and tells in a line of its output how much CPU it took with all that it started and waited
// for: the brokers of its own, its consumers. go test itself tells only how long it took.
//
// It lives on through a signal, to tell that. What ends a run comes to the whole process group, from a terminal or from
// withbrokers, so the tests have it by themselves, and what we passed on they would have twice. Only SIGQUIT comes to us
// alone: go test sends it for a stack trace to what it has started, when that has run for too long.
func meter(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // Signals end it, not a context.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// They are caught and not ignored, which the tests would inherit.
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

// metered takes what the meter says out of a line of output.
func metered(line string) (time.Duration, bool) {
	text, ok := strings.CutPrefix(line, meterMark)
	if !ok {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return time.Duration(seconds * float64(time.Second)), err == nil
}
