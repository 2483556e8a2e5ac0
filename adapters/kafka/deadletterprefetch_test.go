package kafka_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/mq"
)

// largeDLQ opens a DLQ with n records of 900 KB in one partition, of which two fit into a request. It counts the
// fetches.
func largeDLQ(t *testing.T, n int) (deadletter.Queue, *atomic.Int64) {
	t.Helper()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group})
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	var recs []*kgo.Record
	for i := range n {
		rec := order(p.ours("dlq"), fmt.Sprint(i))
		rec.Partition, rec.Value = 0, make([]byte, 900<<10)
		_, _ = rand.Read(rec.Value) // so that it cannot be compressed
		recs = append(recs, rec)
	}
	for _, rec := range recs { // each in its own batch
		put(t, p.addrs, rec)
	}
	q, err := c.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	fetches := new(atomic.Int64)
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			if topic.Topic == p.ours("dlq") {
				fetches.Add(1)
			}
		}
		return nil, nil, false
	})
	return q, fetches
}

func TestAScanReadsOnePageAhead(t *testing.T) {
	t.Parallel()
	const n, pages = 12, 6
	q, fetches := largeDLQ(t, n)
	scan, err := q.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	next := func() error {
		_, err := scan.Next(t.Context(), nil)
		return err
	}
	if err := next(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second page is asked for", func() bool { return fetches.Load() == 2 })
	for i := 1; i < n; i++ {
		if err := next(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := next(); !errors.Is(err, io.EOF) || fetches.Load() > pages+1 {
		t.Errorf("after the last: %v, %d pages were asked for", err, fetches.Load())
	}
	if err := scan.Close(); err != nil {
		t.Error(err)
	}
}

// Close waits only for the read that has begun.
func TestAScanIsClosedWhileItReadsAhead(t *testing.T) {
	t.Parallel()
	q, _ := largeDLQ(t, 12)
	scan, err := q.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scan.Next(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { defer close(closed); _ = scan.Close() }()
	select {
	case <-closed:
	case <-time.After(waitTimeout):
		t.Error("closing a scan waits forever")
	}
}
