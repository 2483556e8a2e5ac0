// Package topiclog reads the partitions of a topic by offset, outside of any group: DLQs, waiting messages, and the
// compacted topics of commands and of a DLQ's state.
//
// A log has gaps: markers of transactions, aborted and compacted records. So a [Page] says where the next page begins,
// and whether a committed record follows. Loops end when none follows, because the last offset may have no record.
package topiclog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	fetchBytes    = 2 << 20
	maxFetchTries = 20
	fetchPause    = 250 * time.Millisecond
)

// Reader reads a topic's partitions by offset, outside of any group. sarama's consumer cannot be used, because it
// would wait forever at an end that is a marker of a transaction and not a record.
type Reader struct {
	Client sarama.Client
	Topic  string
}

// Record is a record that was read.
type Record struct {
	Offset  int64
	Time    time.Time
	Key     []byte // key, value and headers alias the response
	Value   []byte
	Headers []*sarama.RecordHeader
	// Unread is the number of headers if there are more than limits.MaxHeaders and MaxTail together. Headers then has only the last ones.
	Unread int
}

// Page is the result of one request.
type Page struct {
	Records []Record
	Next    int64 // the offset behind the records
	End     bool  // no committed record follows
}

// Bounds returns the first offset of a partition and the one behind its last.
func (l *Reader) Bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	both, err := retryFetch(ctx, l, partition, l.listOffsets(), func() (both [2]int64, err error) {
		if both[0], err = l.Client.GetOffset(l.Topic, partition, sarama.OffsetOldest); err != nil {
			return both, err
		}
		both[1], err = l.Client.GetOffset(l.Topic, partition, sarama.OffsetNewest)
		return both, err
	})
	return both[0], max(both[0], both[1]), err
}

// StableEnd returns the end of a partition, at most end, without the records of open transactions.
func (l *Reader) StableEnd(ctx context.Context, partition int32, end int64) (int64, error) {
	stable, err := retryFetch(ctx, l, partition, l.listOffsets(), func() (int64, error) {
		leader, err := l.Client.Leader(l.Topic, partition)
		if err != nil {
			return 0, err
		}
		req := sarama.NewOffsetRequest(l.Client.Config().Version)
		req.IsolationLevel = sarama.ReadCommitted
		req.AddBlock(l.Topic, partition, sarama.OffsetNewest, 1)
		res, err := leader.GetAvailableOffsets(req)
		if err != nil {
			return 0, err
		}
		switch block := res.GetBlock(l.Topic, partition); {
		case block == nil || errors.Is(block.Err, sarama.ErrNoError) && len(block.Offsets) != 1:
			return 0, sarama.ErrIncompleteResponse
		case !errors.Is(block.Err, sarama.ErrNoError):
			return 0, block.Err
		default:
			return block.Offsets[0], nil
		}
	})
	return min(stable, end), err
}

// FirstAfter returns the offset of the first record of a partition that is later than a time, or -1 if there is none.
func (l *Reader) FirstAfter(ctx context.Context, partition int32, at time.Time) (int64, error) {
	return retryFetch(ctx, l, partition, l.listOffsets(), func() (int64, error) { return l.Client.GetOffset(l.Topic, partition, at.UnixMilli()+1) })
}

// Read returns records from an offset on. It skips records that were deleted meanwhile.
func (l *Reader) Read(ctx context.Context, partition int32, offset int64) (Page, error) {
	return l.ReadUpTo(ctx, partition, offset, fetchBytes)
}

// ReadUpTo is Read with a limit of about the given number of bytes. It reads at least one batch.
func (l *Reader) ReadUpTo(ctx context.Context, partition int32, offset int64, bytes int32) (Page, error) {
	return l.readUpTo(ctx, partition, offset, bytes, sarama.ReadCommitted)
}

func (l *Reader) readUpTo(ctx context.Context, partition int32, offset int64, bytes int32, isolation sarama.IsolationLevel) (Page, error) {
	return retryFetch(ctx, l, partition, cluster.ToTopic("Fetch", "Read", l.Topic), func() (Page, error) {
		p, err := l.fetch(partition, offset, bytes, isolation)
		if errors.Is(err, ErrTooLarge) && bytes > 1 { // one batch fails the whole response
			p, err = l.fetch(partition, offset, 1, isolation)
		}
		if errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("the batch at offset %d: %w", offset, err)
		}
		if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
			return p, err
		}
		start, err := l.Client.GetOffset(l.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return Page{}, err
		}
		if start <= offset {
			return Page{Next: offset, End: true}, nil // the topic was created again and is shorter
		}
		return Page{Next: start}, nil
	})
}

// TimeFrom returns the time of the first record from an offset on, also if its transaction is open. It is zero if there is none.
func (l *Reader) TimeFrom(ctx context.Context, partition int32, offset int64) (time.Time, error) {
	page, err := l.readUpTo(ctx, partition, offset, 1, sarama.ReadUncommitted)
	for _, found := range page.Records {
		if found.Offset >= offset {
			return found.Time, err
		}
	}
	return time.Time{}, err
}

// Has reports whether the log still has a record. A log that has lost its end may have another one at the same offset,
// and compaction may have removed it. A new leader may not know the end of its log at once, so Has asks again for a
// second before it reports that the log ends before the record.
//
// The group of a service (see Wrap) may read records of open and of aborted transactions, which are in the log, too.
func (l *Reader) Has(ctx context.Context, partition int32, rec commitmeta.Record) (bool, error) {
	const tries, pause = 5, 200 * time.Millisecond
	for try := range tries {
		page, err := l.readUpTo(ctx, partition, rec.Offset, 1, sarama.ReadUncommitted)
		if errors.Is(err, errOldFormat) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, found := range page.Records {
			if found.Offset == rec.Offset {
				return l.identify(&found, partition) == rec, nil
			}
		}
		if page.Next > rec.Offset || try == tries-1 {
			break
		}
		if err := wait.For(ctx, pause); err != nil {
			return false, fmt.Errorf("kafka: reading %s: %w", l.Topic, err)
		}
	}
	return false, nil
}

// identify identifies a record as a reader of the group does, which sees it behind sarama's interceptors.
func (l *Reader) identify(found *Record, partition int32) commitmeta.Record {
	rec := &sarama.ConsumerMessage{
		Topic: l.Topic, Partition: partition, Offset: found.Offset, Timestamp: found.Time, Key: found.Key, Value: found.Value, Headers: found.Headers,
	}
	for _, interceptor := range l.Client.Config().Consumer.Interceptors {
		intercept(interceptor, rec)
	}
	return commitmeta.Identify(found.Offset, rec.Timestamp, rec.Key, len(rec.Value))
}

// intercept calls an interceptor. It ignores a panic, as sarama does.
func intercept(i sarama.ConsumerInterceptor, rec *sarama.ConsumerMessage) {
	defer func() { _ = recover() }()
	i.OnConsume(rec)
}

// ReadToEnd is ReadAll, but an open transaction is an error.
func (l *Reader) ReadToEnd(ctx context.Context, partition int32, next, end int64, apply func(*Record)) (int64, error) {
	next, err := l.ReadAll(ctx, partition, next, end, apply)
	if err == nil && next < end {
		err = fmt.Errorf("kafka: %s could be read only to offset %d of %d: another program writes to it in transactions", l.Topic, next, end)
	}
	return next, err
}

// ReadAll calls apply for the records of a partition from next on, at least up to end, and returns the offset behind
// them. That is below end if a transaction is open.
func (l *Reader) ReadAll(ctx context.Context, partition int32, next, end int64, apply func(*Record)) (int64, error) {
	for next < end {
		p, err := l.Read(ctx, partition, next)
		if err != nil {
			return next, err
		}
		for i := range p.Records {
			apply(&p.Records[i])
		}
		if p.End && p.Next <= next {
			break
		}
		next = p.Next
	}
	return next, nil
}

func (l *Reader) listOffsets() cluster.Request {
	return cluster.ToTopic("ListOffsets", "Describe", l.Topic)
}

// retryFetch retries call, because leaders move, and long idle connections die. It returns when ctx ends, although call
// takes no context. The result is that of a request.
func retryFetch[T any](ctx context.Context, l *Reader, partition int32, request cluster.Request, call func() (T, error)) (T, error) {
	found, err := tryFetch(ctx, l, partition, call)
	if ctx.Err() == nil {
		err = cluster.Done(l.Client, request, err)
	}
	return found, err
}

func tryFetch[T any](ctx context.Context, l *Reader, partition int32, call func() (T, error)) (T, error) {
	var none T
	var err error
	for try := range maxFetchTries {
		var found T
		if found, err = cluster.Call(ctx, call); err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			return none, fmt.Errorf("kafka: reading %s: %w", l.Topic, ctx.Err())
		}
		if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			return none, fmt.Errorf("kafka: reading %s: %w", l.Topic, err)
		}
		if errors.Is(err, sarama.ErrClosedClient) || errors.Is(err, errOldFormat) || errors.Is(err, ErrTooLarge) {
			break
		}
		if leader, lerr := l.Client.Leader(l.Topic, partition); lerr == nil && !isBrokerError(err) {
			_ = leader.Close() // the next try connects again
		}
		if err := wait.For(ctx, min(fetchPause, time.Duration(try)*20*time.Millisecond)); err != nil {
			return none, fmt.Errorf("kafka: reading %s: %w", l.Topic, err)
		}
		_ = l.Client.RefreshMetadata(l.Topic) // the next try returns the error
	}
	return none, fmt.Errorf("kafka: reading %s/%d: %w; check whether its leader answers", l.Topic, partition, err)
}

// ErrTooLarge marks a batch that would be larger than the bound when it is decompressed.
var ErrTooLarge = sarama.ErrDecompressedBatchTooLarge

var errOldFormat = errors.New("its records have the format of Kafka 0.10 or older, which cannot be read")

// isBrokerError reports whether a broker sent the error. Otherwise the connection failed.
func isBrokerError(err error) bool {
	var k sarama.KError
	return errors.As(err, &k)
}

func (l *Reader) fetch(partition int32, offset int64, bytes int32, isolation sarama.IsolationLevel) (Page, error) {
	leader, err := l.Client.Leader(l.Topic, partition)
	if err != nil {
		return Page{}, err
	}
	// 4 is the oldest version that all current brokers support; zstd needs 10.
	req := &sarama.FetchRequest{Version: 4, MinBytes: 1, MaxBytes: bytes * 2, MaxWaitTime: 100, Isolation: isolation}
	if l.Client.Config().Version.IsAtLeast(sarama.V2_1_0_0) {
		req.Version, req.SessionEpoch = 10, -1 // no session
	}
	req.AddBlock(l.Topic, partition, offset, bytes, -1)
	res, err := leader.Fetch(req)
	if err != nil {
		return Page{}, err
	}
	block := res.GetBlock(l.Topic, partition)
	switch {
	case block == nil:
		return Page{}, sarama.ErrIncompleteResponse
	case !errors.Is(block.Err, sarama.ErrNoError):
		return Page{}, block.Err
	}
	p := Page{Next: offset}
	if err := p.addRecords(block, offset); err != nil {
		return Page{}, fmt.Errorf("at offset %d: %w", p.Next, err)
	}
	p.End = p.Next >= block.LastStableOffset
	return p, nil
}

// addRecords adds the records of a response, without those of aborted transactions.
func (p *Page) addRecords(block *sarama.FetchResponseBlock, from int64) error {
	begun := make(map[int64]bool) // aborted and open, by producer
	aborted := block.AbortedTransactions
	n := 0
	for _, set := range block.RecordsSet {
		if set.RecordBatch != nil {
			n += len(set.RecordBatch.Records)
		}
	}
	p.Records = make([]Record, 0, n)
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return errOldFormat
		}
		if b.PartialTrailingRecord {
			return nil
		}
		for _, t := range aborted {
			if t.FirstOffset >= b.FirstOffset && t.FirstOffset <= b.LastOffset() || t.FirstOffset < b.FirstOffset && !begun[t.ProducerID] && t.FirstOffset >= 0 {
				begun[t.ProducerID] = true
				t.FirstOffset = -1 // it begins only once
			}
		}
		switch {
		case b.Control:
			if len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0 {
				delete(begun, b.ProducerID) // the end of an aborted transaction
			}
		case b.IsTransactional && begun[b.ProducerID]:
		default:
			for _, r := range b.Records {
				if offset := b.FirstOffset + r.OffsetDelta; offset >= from {
					at := b.FirstTimestamp.Add(r.TimestampDelta)
					if b.LogAppendTime {
						at = b.MaxTimestamp
					}
					one := Record{Offset: offset, Time: at, Key: r.Key, Value: r.Value, Headers: r.Headers}
					if n := len(r.Headers); n > limits.MaxHeaders+limits.MaxTail { // redeliver's are among them
						one.Headers, one.Unread = slices.Clone(r.Headers[n-limits.MaxTail:]), n // without their array
					}
					p.Records = append(p.Records, one)
				}
			}
		}
		p.Next = max(p.Next, b.LastOffset()+1)
	}
	return nil
}
