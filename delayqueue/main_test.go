package delayqueue_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the run when a goroutine of ours or of a library outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(5 * time.Second); left != "" {
		_, _ = fmt.Fprintln(os.Stderr, "goroutines outlived the tests:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leaked waits until no goroutine runs code of a module but this one, and
// returns the stacks of those that still do after patience.
func leaked(patience time.Duration) (left string) {
	tick, over := time.NewTicker(10*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		left = ""
		for _, s := range stacks[1:] { // the first is this one
			if strings.Contains(s, "github.com/") {
				left += s + "\n\n"
			}
		}
		select {
		case <-over:
			return left
		case <-tick.C:
			if left == "" {
				return ""
			}
		}
	}
}
