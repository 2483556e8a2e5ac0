package pubsub

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/deadletter"
)

// The contract of a deadletter.Queue.
func TestDeadLetterQueueInBubbles(t *testing.T) {
	h := &harness{brokers: make(map[string]*memory)}
	kit := newHarnessOf(h)
	kit.Wrap = synctest.Test
	adaptertest.RunDeadLetters(t, kit, h.deadLetters(t.TempDir(), time.Second))
}

// deadLetters opens DLQs in a directory, each as a member of its own. Whoever dies loses
// its locks, and has nothing else to release.
func (h *harness) deadLetters(dir string, quiet time.Duration) adaptertest.DeadLetters {
	return func(tb testing.TB, origin, group string) (deadletter.Queue, func()) {
		tb.Helper()
		m := h.broker(origin).member(tb, group)
		q := shelfOf(tb, m, DeadLetterConfig{Topic: origin, Dir: filepath.Join(dir, origin+"."+group), Quiet: quiet})
		return q, func() {
			m.kill()
			_ = q.Close()
		}
	}
}

// shelfOf opens a DLQ as a member of a group.
func shelfOf(tb testing.TB, m *member, cfg DeadLetterConfig) *deadLetters {
	tb.Helper()
	c, err := Open(Config{
		Publisher: m, Subscriber: m, Group: m.group, Confirms: true, MaxUnacked: NoLimit, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	})
	if err != nil {
		tb.Fatal(err)
	}
	q, err := c.deadLetters(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return q
}
