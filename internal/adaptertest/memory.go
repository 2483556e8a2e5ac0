package adaptertest

import (
	"context"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// memory tests that a service's memory does not grow with the number of messages that it has handled. If each
// settled message kept the next one in memory, none would be freed until the subscription ended.
func memory() []test {
	return append([]test{
		{name: "SettledMessagesAreFreed", body: settledAreFreed},
		{name: "SettledMessagesAreFreedInPerKeyOrder", needs: "OrderThroughRetries", body: settledAreFreedPerKey},
	}, alsoIn(nativeBatches, []test{{name: "SettledMessagesOfBatchesAreFreed", body: settledBatchesAreFreed}})...)
}

const (
	handledMessages = 1000
	// maxKept is how many of them may be in memory when all are settled: an adapter may allocate some together.
	maxKept = handledMessages / 3
)

// memoryCount counts the messages that handlers got, and those that the garbage collector has freed.
type memoryCount struct{ handled, freed atomic.Int64 }

// add counts a message, which must be a pointer.
func (c *memoryCount) add(msg any) {
	c.handled.Add(1)
	runtime.AddCleanup((*byte)(reflect.ValueOf(msg).UnsafePointer()), func(freed *atomic.Int64) { freed.Add(1) }, &c.freed)
}

// checkFreed collects garbage until few messages are in memory.
func (c *memoryCount) checkFreed(b *fixture) {
	b.Helper()
	var kept int64
	for range 100 { // cleanups run beside the collector
		runtime.GC()
		if kept = c.handled.Load() - c.freed.Load(); kept <= maxKept {
			return
		}
	}
	b.Errorf("%d of %d messages are in memory although all are settled, want at most %d", kept, c.handled.Load(), maxKept)
}

func settledAreFreed(b *fixture) { b.routeAndFree(quickPolicy(1)) }

func settledAreFreedPerKey(b *fixture) {
	p := quickPolicy(1)
	p.Order = redeliver.OrderThroughRetries
	b.routeAndFree(p)
}

// routeAndFree handles messages with a Router. Some fail once.
func (b *fixture) routeAndFree(policy redeliver.Policy) {
	b.Helper()
	var c memoryCount
	p := &process{b: b, journal: b.journal, done: make(chan struct{})}
	p.route(b.group, Config{Policy: policy}, func(msg *message.Message) error {
		c.add(msg)
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempts == 0 && strings.HasSuffix(st.ID, "7") {
			return errHandler
		}
		return nil
	}, middleware.Retry())
	b.putAndFree(&c)
}

func settledBatchesAreFreed(b *fixture) {
	var c memoryCount
	policy := quickPolicy(1)
	policy.Timeout = time.Minute
	b.startBatch(Config{Policy: policy}, redeliver.BatchConfig{Size: 10, Timeout: 50 * time.Millisecond}, func(_ context.Context, mb *Batch) error {
		for _, m := range mb.Messages {
			c.add(m)
		}
		return nil
	})
	b.putAndFree(&c)
}

func (b *fixture) putAndFree(c *memoryCount) {
	b.Helper()
	msgs, ids := numberedMessages(handledMessages)
	if b.h.Features.OrderThroughRetries || b.h.Features.OrderFirstAttempts {
		for i := range msgs {
			msgs[i].Key = []byte(msgs[i].ID)
		}
	}
	b.put(msgs...)
	b.awaitEnds(ids...)
	c.checkFreed(b)
}
