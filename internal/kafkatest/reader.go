package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reader reads the committed records of topics with a client other than the adapter's. Handlers do not get markers
// of transactions and aborted records, but these have offsets, so they count for the end. Use it from one
// goroutine.
type Reader struct {
	client *kgo.Client
	admin  *kadm.Client
	topics []string
	next   kadm.Offsets // behind the last record, marker or aborted record
	failed error        // error of the last failed fetch, which is tried again
}

// NewReader returns a reader of topics from their start. The topics may be created later. Close the reader after use.
func NewReader(addrs []string, topics ...string) (*Reader, error) {
	client, err := kgo.NewClient(kgo.ConsumeTopics(topics...), kgo.SeedBrokers(addrs...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond)) // how often it looks for a missing topic
	if err != nil {
		return nil, err
	}
	return &Reader{client: client, admin: kadm.NewClient(client), topics: topics, next: make(kadm.Offsets)}, nil
}

func (r *Reader) Close() { r.client.Close() }

// Poll waits for records and handles them. When ctx ends, it returns ctx's error and the last other one.
func (r *Reader) Poll(ctx context.Context, handle func(*kgo.Record)) error {
	fetches := r.client.PollFetches(ctx)
	fetches.EachRecord(func(rec *kgo.Record) {
		r.next.AddOffset(rec.Topic, rec.Partition, rec.Offset+1, -1)
		if !rec.Attrs.IsControl() {
			handle(rec)
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

// ReadToEnd handles new records up to the present end of the topics. It waits for the end of open transactions.
func (r *Reader) ReadToEnd(ctx context.Context, handle func(*kgo.Record)) error {
	ends, err := r.admin.ListEndOffsets(ctx, r.topics...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return fmt.Errorf("asking for the end of %v: %w", r.topics, err)
	}
	starts, err := r.admin.ListStartOffsets(ctx, r.topics...)
	if err = errors.Join(err, starts.Error()); err != nil {
		return fmt.Errorf("asking for the start of %v: %w", r.topics, err)
	}
	upTo := ends.Offsets()
	upTo.KeepFunc(func(end kadm.Offset) bool { // all of it may be deleted
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
				if err := r.Poll(ctx, handle); err != nil {
					return fmt.Errorf("%s/%d was read up to %d of %d: %w", topic, partition, next.At, end.At, err)
				}
			}
		}
	}
	return nil
}

// Read handles all present records of topics, as [Reader.ReadToEnd] does.
func Read(ctx context.Context, addrs []string, handle func(*kgo.Record), topics ...string) error {
	r, err := NewReader(addrs, topics...)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.ReadToEnd(ctx, handle)
}

// ReadFirst returns the beginning of a topic as soon as it has at least n records.
func ReadFirst(ctx context.Context, addrs []string, topic string, n int) ([]*kgo.Record, error) {
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
