package floor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record below which one is not settled is not committed, in whatever order they end.
func TestNothingAboveAnUnsettledRecordIsCommitted(t *testing.T) {
	const n = 1000
	tr := newTracker()
	entries := make([]*entry, n)
	for i := range entries {
		entries[i] = &entry{record: &sarama.ConsumerMessage{Offset: int64(i)}}
		tr.add(entries[i])
	}
	settled := make([]bool, n)
	for _, i := range rand.Perm(n) {
		tr.settle(entries[i])
		settled[i] = true
		want := int64(slices.Index(settled, false))
		if want == 0 {
			want = -1 // nothing yet
		}
		if all := !slices.Contains(settled, false); all {
			want = n
		}
		if got := tr.next(); got != want {
			t.Fatalf("commits %d, want %d", got, want)
		}
	}
	if left := tr.unsettled(); left != 0 {
		t.Errorf("%d are unsettled", left)
	}
}

// The headers cost what redeliver's cost, come back as they were written, and a user's stay.
func TestHeadersAreAsLargeAsOurs(t *testing.T) {
	record := &sarama.ConsumerMessage{Topic: "orders", Key: []byte("key-00001"), Offset: 123456, Headers: []*sarama.RecordHeader{{Key: []byte("trace"), Value: []byte("t")}}}
	due := time.Now().Add(time.Second)
	waiting := appendWaiting(usersOf(record), 2, due)
	var pointers []*sarama.RecordHeader
	for i := range waiting {
		pointers = append(pointers, &waiting[i])
	}
	attempts, read := parseWaiting(pointers)
	if attempts != 2 || read.Before(due) || read.Sub(due) >= time.Millisecond {
		t.Errorf("%d attempts, due %s after what was written", attempts, read.Sub(due))
	}
	again := usersOf(&sarama.ConsumerMessage{Headers: pointers})
	if len(again) != 1 || string(again[0].Key) != "trace" {
		t.Errorf("a user's headers are %v", again)
	}
	dead := appendDead(usersOf(record), &entry{record: record, attempts: 3}, "billing", errors.New("card declined"), time.Now())
	for _, c := range []struct {
		name      string
		headers   []sarama.RecordHeader
		low, high int
	}{{"on a level", waiting[1:], 170, 210}, {"in the DLQ", dead[1:], 420, 500}} {
		size := 0
		for _, h := range c.headers {
			size += len(h.Key) + len(h.Value) + 2 // two lengths
		}
		if size < c.low || size > c.high {
			t.Errorf("our headers %s are %d bytes, want %d to %d", c.name, size, c.low, c.high)
		}
	}
}

// Messages that always fail end in the DLQ after four attempts, also when the program is stopped half-way and started again,
// and none is early.
func TestAllEndInTheDLQ(t *testing.T) {
	const n = 400
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		rec := &kgo.Record{Topic: "orders", Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprint(i))}
		if err := client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	runs, most := 0, make(map[string]int) // attempts, by value
	run := func(ctx context.Context, ran func(runs int)) {
		err := Run(ctx, Config{
			Brokers: cluster.ListenAddrs(), Topic: "orders", Group: "billing", Level: 200 * time.Millisecond, Retries: 3, Workers: 8,
			Dead: func() {}, Ready: func() {},
			Handle: func(value []byte, attempts int, due time.Time) error {
				mu.Lock()
				defer mu.Unlock()
				if early := time.Until(due); early > 0 {
					t.Errorf("attempt %d of %s is %s early", attempts+1, value, early)
				}
				most[string(value)] = max(most[string(value)], attempts+1)
				runs++
				ran(runs)
				return errors.New("card declined")
			},
		})
		if err != nil {
			t.Error(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	run(ctx, func(runs int) {
		if runs == 3*n/2 {
			stop()
		}
	})
	if runs > 4*n-n/4 {
		t.Errorf("the handler ran %d times before the program was stopped", runs)
	}
	ctx, stop = context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	reader, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("orders.billing.dlq"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	dead, read := make(map[string]bool), make(chan struct{})
	go func() {
		defer close(read)
		defer stop()
		for len(dead) < n && ctx.Err() == nil {
			reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { dead[string(r.Value)] = true })
		}
	}()
	run(ctx, func(int) {})
	stop()
	<-read
	if len(dead) != n {
		t.Errorf("%d of %d are in the DLQ", len(dead), n)
	}
	for value, attempts := range most {
		if attempts != 4 {
			t.Errorf("%s had %d attempts", value, attempts)
		}
	}
}
