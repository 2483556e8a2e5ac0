package leak

import (
	"strings"
	"testing"
	"time"
)

func TestAGoroutineThatStaysIsSeen(t *testing.T) {
	stop := make(chan struct{})
	go func() { <-stop }()
	if left := leaked(0); !strings.Contains(left, "TestAGoroutineThatStaysIsSeen") {
		t.Errorf("a goroutine waits, and %q are left", left)
	}
	close(stop)
	if left := leaked(time.Minute); left != "" {
		t.Errorf("none waits any more, and there are left:\n%s", left)
	}
}
