package perkey

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// The memory of a waiting message as docs/reference/kafka.md and Config.MaxWaiting say: each has its own key, which is
// the maximum.
func BenchmarkWaitingRecordMemory(b *testing.B) {
	const waiting = 100_000
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var maxBytes int64
	for b.Loop() {
		before := heap()
		var behind atomic.Int64
		queues := newQueues(&behind)
		l := &Loader{Queues: queues, From: waiting}
		l.clear()
		for i := range int64(waiting) {
			l.addLoaded(&Copy{keyOffset: keyOffset{uint64(i), i}}, time.UnixMilli(i))
		}
		maxBytes = max(maxBytes, heap()-before)
		runtime.KeepAlive(queues)
	}
	b.ReportMetric(float64(maxBytes)/waiting, "B/message")
}
