package layout

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
)

var anyQueue = rapid.OneOf(rapid.StringMatching(`[a-z.]{1,20}`), rapid.StringN(1, 255, 255),
	rapid.StringMatching(`[a-z]{200,255}`), rapid.StringMatching(`[aü]{120,127}`))

// The level can be parsed from a queue's name, even with a point in it.
func TestLevelOfQueueName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := anyQueue.Draw(t, "queue")
		level := time.Duration(rapid.Int64Range(1, int64(redeliver.MaxWait/time.Millisecond)).Draw(t, "level")) * time.Millisecond
		if rapid.Bool().Draw(t, "seconds") {
			level = max(level.Truncate(time.Second), time.Second)
		}
		var n Names
		name := n.DelayOf(queue, level)
		if got, ok := n.Level(queue, name); !ok || got != level {
			t.Fatalf("%s is of level %v %v, want %v", name, got, ok, level)
		}
		if len(name) > maxQueue {
			t.Fatalf("%s has %d bytes", name, len(name))
		}
	})
}

func TestOtherQueuesHaveNoLevel(t *testing.T) {
	var n Names
	for _, name := range []string{
		"orders.retry", "orders.retry.", "orders.retry.suspects", "orders.retry.90s", "orders.retry.1.1", "orders.retry..1", "orders.retry.10s.1",
		"orders.dlq", "orders", "other.retry.10s", "orders.retry.x.1", "orders.retry.0s",
	} {
		if level, ok := n.Level("orders", name); ok {
			t.Errorf("%s is a level of %v", name, level)
		}
	}
}

// For any queue name, redeliver's names are valid and distinct.
func TestNamesFitAndDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := anyQueue.Draw(t, "queue")
		if strings.HasPrefix(queue, "amq.") {
			queue = "x"
		}
		var n Names
		seen := map[string]bool{queue: true}
		for _, name := range []string{n.RetryOf(queue), n.DLQOf(queue), n.suspectsOf(queue), n.DelayOf(queue, redeliver.MaxWait-time.Millisecond), n.DelayOf(queue, time.Second)} {
			if seen[name] || len(name) > maxQueue || !utf8.ValidString(name) {
				t.Fatalf("%q of %d bytes, together with %v", name, len(name), seen)
			}
			seen[name] = true
		}
	})
}

// Long names are cut, and remain distinct by their hash.
func TestLongQueuesDoNotShareTheirRetries(t *testing.T) {
	long := strings.Repeat("q", maxQueue-1)
	var n Names
	if a, b := n.RetryOf(long+"a"), n.RetryOf(long+"b"); a == b || !strings.HasPrefix(a, "qqq") || !strings.HasSuffix(a, ".retry") {
		t.Errorf("%s and %s", a, b)
	}
	if name := n.DelayOf(long, redeliver.MaxWait-time.Millisecond); len(name) > maxQueue {
		t.Errorf("%s has %d bytes", name, len(name))
	}
	if longest := strings.Repeat("q", maxQueue-maxSuffix); n.RetryOf(longest) != longest+".retry" {
		t.Errorf("a queue of %d bytes is cut: %s", len(longest), n.RetryOf(longest))
	}
}

// A queue of any name that counts as a delay queue has the name that redeliver would give it.
func FuzzLevelOfQueue(f *testing.F) {
	for _, name := range []string{"orders.retry.10s", "orders.retry.10s.2", "orders.retry.1.5s", "orders.retry.90s", "orders.retry", "orders.retry.1m.x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var n Names
		if level, ok := n.Level("orders", name); ok && n.DelayOf("orders", level) != name {
			t.Errorf("%q was read as level %s", name, level)
		}
	})
}
