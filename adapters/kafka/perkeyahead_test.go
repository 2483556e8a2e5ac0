package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// A former owner of the partition was stopped for longer than its session, and runs again. Until its next heartbeat it
// retries or parks what it had read: it writes a copy of a record to a level, where the present owner has not come to that
// record in the origin. The copy must not run before the earlier records of its key.
func TestOnKafkaACopyOfAFormerOwnerKeepsTheOrderOfItsKey(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Policy: perKeyPolicy(100 * time.Millisecond), MaxInFlight: 1}
	p.provision(t, cfg.Policy)
	var mu sync.Mutex
	var ran []string
	busy, release := make(chan struct{}), make(chan struct{})
	ev, _ := consume(t, p, cfg, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if string(rec.Value) == "slow" { // it has the only slot for first deliveries
			close(busy)
			<-release
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if string(rec.Key) == "k" {
			ran = append(ran, string(rec.Value))
		}
		return nil
	})
	slow := keyed(p, "slow", "slow")
	put(t, p.addrs, slow) // offset 0
	<-busy
	var recs []*kgo.Record
	var ids []string
	for i := range 5 {
		id := fmt.Sprint("k-", i+1)
		recs, ids = append(recs, keyed(p, "k", id)), append(ids, id)
	}
	put(t, p.addrs, recs...) // offsets 1 to 5
	last := leftOnLevel(p, 100*time.Millisecond, "k", "k-5", 5, 1, 100*time.Millisecond, recs[4].Timestamp)
	behind := leftOnLevel(p, 100*time.Millisecond, "other", "behind", 0, 1, 200*time.Millisecond, slow.Timestamp.Add(-time.Hour)) // of a log that is gone
	put(t, p.addrs, last, behind)
	ev.awaitEnds(t, "behind") // k-5 was due before
	close(release)
	ev.awaitEnds(t, append(ids, "slow")...)
	eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == 6 })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ran, ids) {
		t.Errorf("the key ran %q, want %q", ran, ids)
	}
}
