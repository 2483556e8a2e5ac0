package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

const (
	fetchBytes = 2 << 20
	fetchTries = 20
	fetchPause = 250 * time.Millisecond
)

// logReader reads a topic's partitions by offset, outside of any group. sarama's consumer cannot be used, because it
// would wait forever at an end that is a marker of a transaction and not a record.
type logReader struct {
	client sarama.Client
	topic  string
}

// fetchedRecord is a record that was read.
type fetchedRecord struct {
	offset  int64
	at      time.Time
	key     []byte // key, value and headers alias the response
	value   []byte
	headers []*sarama.RecordHeader
}

// page is the result of one request.
type page struct {
	records []fetchedRecord
	next    int64 // the offset behind the records
	end     bool  // no committed record follows
}

// bounds returns the first offset of a partition and the one behind its last.
func (l *logReader) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	both, err := retryFetch(ctx, l, partition, func() (both [2]int64, err error) {
		if both[0], err = l.client.GetOffset(l.topic, partition, sarama.OffsetOldest); err != nil {
			return both, err
		}
		both[1], err = l.client.GetOffset(l.topic, partition, sarama.OffsetNewest)
		return both, err
	})
	return both[0], max(both[0], both[1]), err
}

// read returns records from an offset on. It skips records that were deleted meanwhile.
func (l *logReader) read(ctx context.Context, partition int32, offset int64) (page, error) {
	return l.readUpTo(ctx, partition, offset, fetchBytes)
}

// readUpTo is read for about that many bytes, but at least a batch.
func (l *logReader) readUpTo(ctx context.Context, partition int32, offset int64, bytes int32) (page, error) {
	return retryFetch(ctx, l, partition, func() (page, error) {
		p, err := l.fetch(partition, offset, bytes)
		if !errors.Is(err, sarama.ErrOffsetOutOfRange) {
			return p, err
		}
		start, err := l.client.GetOffset(l.topic, partition, sarama.OffsetOldest)
		if err != nil {
			return page{}, err
		}
		if start <= offset {
			return page{next: offset, end: true}, nil // it was created again, and is shorter
		}
		return page{next: start}, nil
	})
}

// retryFetch retries errors of moving leaders and of connections that were idle for long. It returns when ctx ends,
// even if sarama's function takes no context.
func retryFetch[T any](ctx context.Context, l *logReader, partition int32, call func() (T, error)) (T, error) {
	var none T
	var err error
	for try := range fetchTries {
		var found T
		if found, err = cluster.Call(ctx, call); err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			return none, fmt.Errorf("kafka: reading %s: %w", l.topic, ctx.Err())
		}
		if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			return none, fmt.Errorf("kafka: reading %s: %w; the user needs Read on it", l.topic, err)
		}
		if errors.Is(err, sarama.ErrClosedClient) {
			break
		}
		if leader, lerr := l.client.Leader(l.topic, partition); lerr == nil && !isBrokerError(err) {
			_ = leader.Close() // the next try connects again
		}
		pause := time.NewTimer(min(fetchPause, time.Duration(try)*20*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return none, fmt.Errorf("kafka: reading %s: %w", l.topic, ctx.Err())
		}
		_ = l.client.RefreshMetadata(l.topic) // the next try returns the error
	}
	return none, fmt.Errorf("kafka: reading %s/%d: %w; check whether its leader answers", l.topic, partition, err)
}

// isBrokerError reports whether a broker sent the error. Otherwise the connection failed.
func isBrokerError(err error) bool {
	var k sarama.KError
	return errors.As(err, &k)
}

func (l *logReader) fetch(partition int32, offset int64, bytes int32) (page, error) {
	leader, err := l.client.Leader(l.topic, partition)
	if err != nil {
		return page{}, err
	}
	// 4 is the oldest version that all current brokers support; zstd needs 10.
	req := &sarama.FetchRequest{Version: 4, MinBytes: 1, MaxBytes: bytes * 2, MaxWaitTime: 100, Isolation: sarama.ReadCommitted}
	if l.client.Config().Version.IsAtLeast(sarama.V2_1_0_0) {
		req.Version, req.SessionEpoch = 10, -1 // no session
	}
	req.AddBlock(l.topic, partition, offset, bytes, -1)
	res, err := leader.Fetch(req)
	if err != nil {
		return page{}, err
	}
	block := res.GetBlock(l.topic, partition)
	switch {
	case block == nil:
		return page{}, sarama.ErrIncompleteResponse
	case !errors.Is(block.Err, sarama.ErrNoError):
		return page{}, block.Err
	}
	p := page{next: offset}
	if err := p.addRecords(block, offset); err != nil {
		return page{}, fmt.Errorf("at offset %d: %w", p.next, err)
	}
	p.end = p.next >= block.LastStableOffset
	return p, nil
}

// addRecords adds the records of a response, without those of aborted transactions.
func (p *page) addRecords(block *sarama.FetchResponseBlock, from int64) error {
	begun := make(map[int64]bool) // aborted transactions, by producer
	aborted := block.AbortedTransactions
	n := 0
	for _, set := range block.RecordsSet {
		if set.RecordBatch != nil {
			n += len(set.RecordBatch.Records)
		}
	}
	p.records = make([]fetchedRecord, 0, n)
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return errors.New("its records are in the format of before Kafka 0.11, which is not read")
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
					p.records = append(p.records, fetchedRecord{offset, at, r.Key, r.Value, r.Headers})
				}
			}
		}
		p.next = max(p.next, b.LastOffset()+1)
	}
	return nil
}
