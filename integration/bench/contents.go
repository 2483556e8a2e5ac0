package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// contents is what an independent reader finds in a topic or a queue.
type contents struct {
	records  int
	distinct map[uint64]int // how often each id stands there
	sum      uint64         // over the first of each id
	last     time.Time      // of the records' timestamps; zero on RabbitMQ, which has none
}

func (f *contents) add(value []byte) {
	f.records++
	id := idOf(value)
	if f.distinct[id]++; f.distinct[id] == 1 {
		f.sum += fold(value)
	}
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// reading is a reader on its way, which sees no more than what is committed.
type reading struct {
	contents

	next map[place]int64 // the offset after the last that was seen, a transaction's mark too
}

// follow reads what the options say and calls more after every batch until that returns false.
func (c *cluster) follow(ctx context.Context, more func(*reading) bool, from ...kgo.Opt) (*contents, error) {
	reader, err := kgo.NewClient(append(from, kgo.SeedBrokers(c.addrs...), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	found := &reading{contents: contents{distinct: make(map[uint64]int)}, next: make(map[place]int64)}
	for more(found) {
		poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := reader.PollFetches(poll)
		cancel()
		if ctx.Err() != nil {
			return &found.contents, ctx.Err()
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) {
				return &found.contents, fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, e.Err)
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			found.next[place{r.Topic, r.Partition}] = r.Offset + 1
			if r.Attrs.IsControl() {
				return
			}
			found.add(r.Value)
			if r.Timestamp.After(found.last) {
				found.last = r.Timestamp
			}
		})
	}
	return &found.contents, nil
}

// fromStart are the options of a reader of a whole topic.
func fromStart(topic string) []kgo.Opt {
	return []kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
}

// read reads all that stands in a topic now.
func (c *cluster) read(ctx context.Context, topic string) (*contents, error) {
	starts, err := c.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	upTo := make(map[place]int64)
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(end.Topic, end.Partition); !ok || start.Offset < end.Offset {
			upTo[place{end.Topic, end.Partition}] = end.Offset
		}
	})
	return c.upTo(ctx, upTo, fromStart(topic)...)
}

// upTo reads what the options say until it has come to the end of each place.
func (c *cluster) upTo(ctx context.Context, ends map[place]int64, from ...kgo.Opt) (*contents, error) {
	deadline := time.Now().Add(time.Minute)
	var short string
	found, err := c.follow(ctx, func(f *reading) bool {
		short = ""
		for p, end := range ends {
			if next := f.next[p]; next < end {
				short = fmt.Sprintf("%s/%d was read up to %d of %d within a minute", p.topic, p.partition, next, end)
				break
			}
		}
		return short != "" && time.Now().Before(deadline)
	}, from...)
	if err == nil && short != "" {
		err = errors.New(short)
	}
	return found, err
}
