package kafkashare

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// maxControlPage bounds one answer about a control topic, in bytes.
const maxControlPage = 1 << 20

// pauseMarks reads the mark that pauses a group. It is in the group's control topic, which is compacted and has one
// partition. adapters/kafka and the command write it.
type pauseMarks struct {
	client *kgo.Client
	topic  string
	last   *redeliver.PauseMark // of the last read
}

// read returns the mark, or nil. It reads the whole topic, because there are few marks. A topic that is missing for a
// moment ends no pause.
func (p *pauseMarks) read(ctx context.Context) (*redeliver.PauseMark, error) {
	found, _, err := admin{p.client}.topics(ctx, p.topic)
	t, exists := found[p.topic]
	if err != nil || !exists {
		return p.last, err
	}
	var mark *redeliver.PauseMark
	for next, end := int64(0), int64(1); next < end; {
		page, after, err := p.fetch(ctx, t, next)
		if errors.Is(err, kerr.OffsetOutOfRange) && page.LogStartOffset > next {
			next = page.LogStartOffset
			continue
		}
		if end = page.LastStableOffset; err == nil && after == next && next < end {
			err = fmt.Errorf("it ends before offset %d", end)
		}
		if err != nil {
			return nil, explain(kafkaname.ToTopic(fetchRequest, "Read", p.topic), fmt.Errorf("kafkashare: reading %s from offset %d: %w", p.topic, next, err))
		}
		for _, rec := range page.Records {
			if string(rec.Key) == wirename.PauseKey {
				if mark = nil; rec.Value != nil {
					m := redeliver.ParsePauseMark(string(rec.Value))
					mark = &m
				}
			}
		}
		next = after
	}
	p.last = mark
	return mark, nil
}

// fetch returns records of the topic, and the offset behind them. A consumer of franz-go would wait for the last
// offset forever if compaction has removed its record.
func (p *pauseMarks) fetch(ctx context.Context, t kmsg.MetadataResponseTopic, offset int64) (page kgo.FetchPartition, after int64, err error) {
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, maxControlPage
	req := kmsg.NewPtrFetchRequest()
	req.IsolationLevel = 1 // read committed
	req.Topics = []kmsg.FetchRequestTopic{{Topic: p.topic, TopicID: t.TopicID, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	answer, err := p.client.Broker(int(t.Partitions[0].Leader)).RetriableRequest(ctx, req)
	if err != nil {
		return page, offset, err
	}
	resp, _ := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return page, offset, err
	}
	page.Err = errors.New("the answer lacks the partition")
	for _, answered := range resp.Topics {
		for i := range answered.Partitions {
			page, after = kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: offset, IsolationLevel: kgo.ReadCommitted(), Topic: p.topic},
				&answered.Partitions[i], kgo.DefaultDecompressor(), nil)
		}
	}
	return page, after, page.Err
}
