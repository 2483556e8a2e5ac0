package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads topics as who reads only committed records sees them, with a client that is
// not the adapter's. Marks of transactions and what was aborted have offsets, too: they
// count where an end is reached, and are handed to nobody. It is one goroutine's.
type Reader struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string
	next   kadm.Offsets // behind the last that was seen
	failed error        // of the last fetch that did; it is tried again
}

// NewReader makes a reader of topics from their start, which may come later than it. It is
// to be closed.
func NewReader(addrs []string, topics ...string) (*Reader, error) {
	client, err := kgo.NewClient(kgo.ConsumeTopics(topics...), kgo.SeedBrokers(addrs...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond)) // so often it looks for a topic that is not there yet
	if err != nil {
		return nil, err
	}
	return &Reader{client: client, admin: kadm.NewClient(client), topics: topics, next: make(kadm.Offsets)}, nil
}

// Close ends it.
func (r *Reader) Close() { r.client.Close() }

// Poll waits until something comes and hands it on. An error says that ctx has ended, and
// what went wrong until then.
func (r *Reader) Poll(ctx context.Context, take func(*kgo.Record)) error {
	fetches := r.client.PollFetches(ctx)
	fetches.EachRecord(func(rec *kgo.Record) {
		r.next.AddOffset(rec.Topic, rec.Partition, rec.Offset+1, -1)
		if !rec.Attrs.IsControl() {
			take(rec)
		}
	})
	if err := ctx.Err(); err != nil {
		return errors.Join(err, r.failed)
	}
	fetches.EachError(func(topic string, partition int32, err error) {
		r.failed = fmt.Errorf("fetching from %s/%d: %w", topic, partition, err)
	})
	return nil
}

// ToEnd hands on what has come since the last time, up to all that is written now. It waits for the end of open
// transactions.
func (r *Reader) ToEnd(ctx context.Context, take func(*kgo.Record)) error {
	ends, err := r.admin.ListEndOffsets(ctx, r.topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return fmt.Errorf("asking for the end of %v: %w", r.topics, err)
	}
	starts, err := r.admin.ListStartOffsets(ctx, r.topics...)
	if err = errors.Join(err, starts.Error()); err != nil {
		return fmt.Errorf("asking for the start of %v: %w", r.topics, err)
	}
	upTo := ends.Offsets()
	upTo.KeepFunc(func(end kadm.Offset) bool { // all of it may have been deleted
		start, _ := starts.Lookup(end.Topic, end.Partition)
		return start.Offset < end.At
	})
	for topic, partitions := range upTo {
		for partition, end := range partitions {
			for {
				next, _ := r.next.Lookup(topic, partition)
				if next.At >= end.At {
					break
				}
				if err := r.Poll(ctx, take); err != nil {
					return fmt.Errorf("%s/%d was read up to %d of %d: %w", topic, partition, next.At, end.At, err)
				}
			}
		}
	}
	return nil
}

// Read hands on all that is in topics now, as [Reader.ToEnd] does.
func Read(ctx context.Context, addrs []string, take func(*kgo.Record), topics ...string) error {
	r, err := NewReader(addrs, topics...)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.ToEnd(ctx, take)
}

// First returns the beginning of a topic as soon as it has n records, or more.
func First(ctx context.Context, addrs []string, topic string, n int) ([]*kgo.Record, error) {
	r, err := NewReader(addrs, topic)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var recs []*kgo.Record
	for len(recs) < n {
		if err := r.Poll(ctx, func(rec *kgo.Record) { recs = append(recs, rec) }); err != nil {
			return recs, fmt.Errorf("%s has %d records of %d: %w", topic, len(recs), n, err)
		}
	}
	return recs, nil
}
