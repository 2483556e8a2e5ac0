package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/internal/kafkatest"
)

// contents describes the messages that an independent reader finds in a topic or a queue.
type contents struct {
	records  int
	distinct map[uint64]int // how often each id is there
	sum      uint64         // over the first copy of each id
	last     time.Time      // of the records' timestamps; zero on RabbitMQ, which has none
}

func (f *contents) add(value []byte) {
	f.records++
	id := idOf(value)
	if f.distinct[id]++; f.distinct[id] == 1 {
		f.sum += fold(value)
	}
}

// take adds a record of Kafka.
func (f *contents) take(r *kgo.Record) {
	f.add(r.Value)
	if r.Timestamp.After(f.last) {
		f.last = r.Timestamp
	}
}

// read reads all records now in a topic.
func (c *cluster) read(ctx context.Context, topic string) (*contents, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found := &contents{distinct: make(map[uint64]int)}
	return found, kafkatest.Read(ctx, c.addrs, found.take, topic)
}
