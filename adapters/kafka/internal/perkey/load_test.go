package perkey

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/delayqueue"
)

// onePartition makes a fake cluster with a topic of one partition. write writes a record to it.
func onePartition(t *testing.T, topic string) (write func(*kgo.Record), client sarama.Client) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	producer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	client, err = sarama.NewClient(cluster.ListenAddrs(), sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return func(rec *kgo.Record) {
		t.Helper()
		if err := producer.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}, client
}

// The load reads all records of the origin that may be overtaken, in several fetches if necessary. After MaxWaiting
// records it keeps only those of keys that wait.
func TestLoadReadsAllRecordsThatMayBeOvertaken(t *testing.T) {
	const maxWaiting, records = 3, 60 // of 100 KB: six fetches
	write, client := onePartition(t, "orders")
	want := []int64{0, 1, 2}
	for i := range records {
		rec := &kgo.Record{Topic: "orders", Key: fmt.Append(nil, "other ", i), Value: make([]byte, 100<<10)}
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(rec.Value) // never fails
		if i%10 == 9 {
			rec.Key = []byte("waits")
			want = append(want, int64(i))
		}
		write(rec)
	}
	queues := newQueues(new(atomic.Int64))
	l := &Loader{Queues: queues, Origin: Log{Reader: topiclog.Reader{Client: client, Topic: "orders"}}, MaxWaiting: maxWaiting}
	l.clear()
	waits := Copy{keyOffset: keyOffset{maphash.String(seed, "waits"), records}}
	l.addLoaded(&waits, time.Now())
	if err := l.loadOrigin(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, p := range queues.unread {
		got = append(got, p.offset)
	}
	if !slices.Equal(got, want) {
		t.Errorf("expects the records at %v, want %v", got, want)
	}
	if queue := queues.queues[waits.key]; len(queue.records) != records/10+1 {
		t.Errorf("the queue of the waiting key has %d records, want %d", len(queue.records), records/10+1)
	}
}

// If the load took settled records for waiting ones, new messages of their keys would be parked until the next
// rebalance.
func TestLoadSkipsSettledRecordsInAllFetches(t *testing.T) {
	const level, records = "orders.billing.retry.1s", 60 // of 100 KB: several fetches
	write, client := onePartition(t, level)
	body := make([]byte, 100<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(body) // never fails
	for i := range records {
		write(&kgo.Record{Topic: level, Key: fmt.Append(nil, i), Value: body})
	}
	queues := newQueues(new(atomic.Int64))
	l := &Loader{
		Queues: queues, Levels: []Log{{Reader: topiclog.Reader{Client: client, Topic: level}, Settled: commitmeta.Runs{{From: 1, To: records - 1}}}},
		Stay: func(_ string, rec *topiclog.Record) delayqueue.Stay {
			return delayqueue.Stay{State: &redeliver.State{Attempts: 1, Source: redeliver.Source{Known: true, Offset: rec.Offset}}}
		},
	}
	l.clear()
	if err := l.loadLevel(t.Context(), &l.Levels[0]); err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, q := range queues.queues {
		for _, rec := range q.records {
			got = append(got, rec.offset)
		}
	}
	slices.Sort(got)
	if want := []int64{0, records - 1}; !slices.Equal(got, want) {
		t.Errorf("the records at %v wait, want %v", got, want)
	}
}

// The memory of a record as the comment of loadOrigin says.
func TestALoadedRecordTakes64Bytes(t *testing.T) {
	if n := unsafe.Sizeof(queuedRecord{}) + unsafe.Sizeof(keyOffset{}); n > 64 {
		t.Errorf("%d bytes", n)
	}
}
