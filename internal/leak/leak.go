// Package leak fails a run of tests that a goroutine outlives.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Main is a TestMain that fails the run when a goroutine of ours or of a library outlives
// the tests by 5 s.
func Main(m *testing.M) {
	code := m.Run()
	if left := leaked(5 * time.Second); left != "" {
		_, _ = fmt.Fprintln(os.Stderr, "goroutines outlived the tests:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leaked waits until no goroutine runs code of a module but this one, and
// returns the stacks of those that still do after maxWait.
func leaked(maxWait time.Duration) string {
	tick, over := time.NewTicker(10*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	for {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		left := slices.DeleteFunc(stacks[1:], func(stack string) bool { return !strings.Contains(stack, "github.com/") }) // the first is this one
		select {
		case <-over:
			return strings.Join(left, "\n\n")
		case <-tick.C:
			if len(left) == 0 {
				return ""
			}
		}
	}
}
