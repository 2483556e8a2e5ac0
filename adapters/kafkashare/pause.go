package kafkashare

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Pause implements [mq.Pauser]. The mark is the one of adapters/kafka.
func (c *client) Pause(ctx context.Context, topic, reason string) error {
	mark := engine.NewPauseMark(ctx, reason, false)
	return c.setPaused(ctx, topic, &mark)
}

// PauseNew implements [mq.NewPauser].
func (c *client) PauseNew(ctx context.Context, topic, reason string) error {
	mark := engine.NewPauseMark(ctx, reason, true)
	return c.setPaused(ctx, topic, &mark)
}

// Resume implements [mq.Pauser].
func (c *client) Resume(ctx context.Context, topic string) error { return c.setPaused(ctx, topic, nil) }

// Paused implements [mq.Pauser].
func (c *client) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	return (&pauseMarks{client: c.client, topic: c.controlTopic(topic)}).read(ctx)
}

func (c *client) controlTopic(topic string) string {
	return kafkaname.Base(topic, c.cfg.Group) + wirename.ControlSuffix
}

// setPaused writes the mark of a pause, or ends a pause if mark is nil. The first mark creates the control topic.
func (c *client) setPaused(ctx context.Context, topic string, mark *redeliver.PauseMark) error {
	control, retry := c.controlTopic(topic), kafkaname.Base(topic, c.cfg.Group)+wirename.RetrySuffix
	found, _, err := c.admin.topics(ctx, control, retry)
	if err != nil {
		return err
	}
	t, exists := found[control]
	like, used := found[retry]
	switch {
	case !exists && !used:
		return fmt.Errorf("kafkashare: %s does not exist: group %s has never subscribed to %s", retry, c.cfg.Group, topic)
	case !exists && mark == nil:
		return nil
	case !exists:
		if t, err = c.createControl(ctx, control, like); err != nil {
			return err
		}
	}
	rec := &kgo.Record{Topic: control, Key: []byte(wirename.PauseKey)}
	if mark != nil { // a pause can always be ended
		if err := c.admin.checkControl(ctx, t); err != nil {
			return err
		}
		rec.Value = []byte(mark.String())
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SendTimeout)
	defer cancel()
	done := make(driver.Result, 1)
	c.publisher.write(ctx, rec, done)
	return <-done // a write ends with ctx
}

// createControl creates a control topic with as many replicas as another topic of the subscription.
func (c *client) createControl(ctx context.Context, control string, like kmsg.MetadataResponseTopic) (t kmsg.MetadataResponseTopic, err error) {
	have, err := c.admin.settings(ctx, kmsg.ConfigResourceTypeTopic, *like.Topic)
	if err != nil {
		return t, err
	}
	planned := plannedTopic{Name: control, Partitions: 1, Replicas: int16(len(like.Partitions[0].Replicas)), Settings: kafkaname.CompactedSettings(true, have.all["min.insync.replicas"])}
	if c.cfg.NoProvisioning {
		return t, fmt.Errorf("kafkashare: topic %s is missing, and NoProvisioning is set: create it with 1 partition, %d replicas and %s", control, planned.Replicas, kafkaname.SettingsText(planned.Settings))
	}
	if err := c.admin.create(ctx, planned, 0); err != nil {
		return t, err
	}
	created, err := c.admin.awaitLeaders(ctx, control)
	return created[control], err
}

// checkControl refuses a control topic that would lose a mark.
func (a admin) checkControl(ctx context.Context, t kmsg.MetadataResponseTopic) error {
	have, err := a.settings(ctx, kmsg.ConfigResourceTypeTopic, *t.Topic)
	if err != nil {
		return err
	}
	var ps check.Problems
	kafkaname.CheckPartition(&ps, *t.Topic, len(t.Partitions))
	kafkaname.CheckCompacted(&ps, *t.Topic, true, have.all)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafkashare: %w", err)
	}
	return nil
}

// maxControlPage bounds one answer about a control topic, in bytes.
const maxControlPage = 1 << 20

// pauseMarks reads the mark that pauses a group. It is in the group's control topic, which is compacted and has one
// partition. adapters/kafka writes it, too.
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
