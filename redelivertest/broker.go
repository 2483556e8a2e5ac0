package redelivertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Bounds of [Broker.Wait].
const (
	maxRealWait    = time.Minute
	maxVirtualWait = 20 * 365 * 24 * time.Hour // many times the longest wait
	maxRefused     = 1000                      // refused writes during a wait
)

// Broker is a broker in memory. Any number of groups read its topics, each with its own delay
// topics and DLQ. It is safe for concurrent use, but the methods that may fail the test belong to
// the test's goroutine.
type Broker struct {
	tb     testing.TB
	bubble bool // the clock is virtual
	began  time.Time

	pausing sync.Mutex // held while a pause changes; locked before mu

	mu       sync.Mutex
	topics   map[string][]storedRecord
	queues   map[[2]string]*queue // by topic and group
	readers  []*reader
	changed  chan struct{} // closed at each change, and replaced by another
	crashed  bool          // a Client was killed
	refusals int
}

// storedRecord is a record in a topic; its index is its offset.
type storedRecord struct {
	record
	at    time.Time
	after *delivery // see item
}

// New returns a broker for a test. In a bubble of testing/synctest it uses the bubble's clock. Otherwise it uses the
// real clock, and the test takes as long as the delays. Everything that was opened and started ends with the test.
func New(tb testing.TB) *Broker {
	tb.Helper()
	return &Broker{
		tb: tb, bubble: waitIdle(), began: time.Now(),
		topics: make(map[string][]storedRecord), queues: make(map[[2]string]*queue), changed: make(chan struct{}),
	}
}

// Elapsed returns the time since the broker was created, by its clock.
func (b *Broker) Elapsed() time.Duration { return time.Since(b.began) }

// Publish writes messages to a topic, for all its groups, present and future. It fails the test for a
// message with Watermill's delay: such a message waits in a group, so publish it with the Publisher of
// a Client.
func (b *Broker) Publish(topic string, msgs ...*message.Message) {
	b.tb.Helper()
	for _, msg := range msgs {
		if msg.Metadata.Get(delay.DelayedUntilKey)+msg.Metadata.Get(delay.DelayedForKey) != "" {
			b.tb.Fatalf("redelivertest: message %s has a delay, which waits in a group: use the Publisher of a Client", msg.UUID)
		}
		b.append(topic, marshal(msg), nil)
	}
}

// append writes a record to a topic.
func (b *Broker) append(topic string, rec record, after *delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.putLocked(topic, rec, after)
}

// putLocked is append for a caller that holds mu.
func (b *Broker) putLocked(topic string, rec record, after *delivery) {
	b.topics[topic] = append(b.topics[topic], storedRecord{rec, time.Now(), after})
	for _, q := range b.queues {
		if q.topic == topic {
			q.catchUpLocked()
		}
	}
	b.wakeAllLocked()
}

// queueLocked returns the queue of a group for a topic.
func (b *Broker) queueLocked(topic, group string) *queue {
	at := [2]string{topic, group}
	q := b.queues[at]
	if q == nil {
		q = &queue{b: b, topic: topic, group: group, keys: make(map[keyLock]*keyOwner), refused: make(map[Place]int)}
		b.queues[at] = q
		q.catchUpLocked()
	}
	return q
}

// wakeAllLocked wakes all goroutines that wait for a change.
func (b *Broker) wakeAllLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
	for _, r := range b.readers {
		r.source.wakeLocked()
	}
}

// Wait returns when everything is at rest: each message of a group that has a reader was handled or
// is in the DLQ, and nothing waits. In a bubble that takes no time, however long the delays are.
// Wait fails the test if that never happens: because the test refuses a write (see
// [Subscription.RefuseWrites]), or because a handler does not return (in real time, within a minute).
//
// Outside a bubble, a Router that the test itself runs must be Running before the call.
func (b *Broker) Wait() {
	b.tb.Helper()
	maxWait := maxRealWait
	if b.bubble {
		maxWait = maxVirtualWait
	}
	deadline := time.NewTimer(maxWait)
	defer deadline.Stop()
	b.mu.Lock()
	refusals := b.refusals
	b.mu.Unlock()
	for {
		if b.bubble {
			waitIdle() // a Router that was just started has now subscribed
		}
		b.mu.Lock()
		changed, busy, refused := b.changed, b.busyLocked(), b.refusals-refusals
		b.mu.Unlock()
		switch {
		case len(busy) == 0:
			return
		case refused > maxRefused:
			b.tb.Fatalf("redelivertest: the broker has refused %d writes, and the test never calls restore; not at rest: %s", refused, strings.Join(busy, "; "))
		}
		select {
		case <-changed:
		case <-deadline.C:
			b.tb.Fatalf("redelivertest: not at rest within %s: %s", maxWait, strings.Join(busy, "; "))
		}
	}
}

// busyLocked describes what is not at rest.
func (b *Broker) busyLocked() (what []string) {
	seen := make(map[*queue]bool)
	for _, r := range b.readers {
		if n := len(r.q.items); n > 0 && !seen[r.q] {
			seen[r.q] = true
			it := r.q.items[0]
			what = append(what, fmt.Sprintf("%d messages of %s for %s, the first is %s on %s", n, r.q.topic, r.q.group, it.idOf(r.q.topic, it.offset, it.at), it.where))
		}
	}
	return what
}
