package kafkaworld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// topicOf returns the topic that a word of an administrator is about, or "" if there is none.
func (d *Driver) topicOf(ctx context.Context, o plan.Word, group string) (string, error) {
	own := o.Topic + "." + group
	switch o.What {
	case plan.DeleteOrigin, plan.ExpireOrigin:
		return o.Topic, nil
	case plan.DeleteDLQ:
		return own + ".dlq", nil
	case plan.DeleteRetry:
		return own + ".retry", nil
	}
	listed, err := d.admin.ListTopics(ctx)
	if err != nil {
		return "", err
	}
	var levels []string
	for _, name := range listed.Names() {
		if strings.HasPrefix(name, own+".retry.") || o.What == plan.ExpireLevel && name == own+".retry" {
			levels = append(levels, name)
		}
	}
	if levels == nil {
		return "", nil
	}
	slices.Sort(levels)
	return levels[o.Count%len(levels)], nil
}

// remove deletes a topic, or the older part of its messages, and notes these. Meanwhile the topic refuses writes, so that none is
// deleted unseen.
func (d *Driver) remove(o plan.Word, group string) (heal func(), err error) {
	defer d.lockWork()()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	topic, err := d.topicOf(ctx, o, group)
	if err != nil || topic == "" {
		return nil, err
	}
	info := d.cluster.TopicInfo(topic)
	if info == nil {
		return nil, nil
	}
	defer d.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotLeaderForPartition, Count: -1}).Remove()
	if o.What == plan.DeleteDLQ {
		return d.removeDLQ(ctx, o, info, group)
	}
	expires := o.What == plan.ExpireOrigin || o.What == plan.ExpireLevel
	partitions := d.cluster.PartitionInfos(topic)
	var gone []live.Copy
	ends := make(map[int32]int64)
	for _, p := range partitions {
		from, to := p.LogStartOffset, p.HighWatermark
		if expires {
			to -= (to - from) * int64(o.Count) / 8
		}
		if ends[p.Partition] = to; from == to {
			continue
		}
		records, err := d.readPartition(ctx, topic, p.Partition, from, to)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			c := live.Copy{Body: r.Body, Attempt: r.Attempt, Topic: topic, Place: r.Place}
			if topic != o.Topic {
				c.Group = group
			}
			gone = append(gone, c)
		}
	}
	for i := range gone {
		gone[i].At = time.Now()
	}
	if expires {
		for p, to := range ends {
			if err := d.cluster.DeleteRecords(topic, p, to); err != nil {
				return nil, err
			}
		}
	} else {
		heal, err = d.deleteTopic(o, info, len(partitions))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted = append(d.deleted, gone...)
	return heal, err
}

// removeDLQ deletes a DLQ, and notes the dead letters that it had.
func (d *Driver) removeDLQ(ctx context.Context, o plan.Word, info *kfake.TopicInfo, group string) (heal func(), err error) {
	letters, err := d.readDLQ(ctx, info.Topic)
	if err != nil {
		return nil, err
	}
	partitions := d.cluster.PartitionInfos(info.Topic)
	for _, p := range partitions {
		delete(d.read, fmt.Sprintf("%s/%d", info.Topic, p.Partition))
	}
	d.mu.Lock()
	d.letters[group] = append(d.letters[group], letters...)
	d.mu.Unlock()
	return d.deleteTopic(o, info, len(partitions))
}

// lockWork waits until no other administrator works. A goroutine that waits for a mutex would stop the bubble's time.
func (d *Driver) lockWork() (unlock func()) {
	for !d.work.TryLock() {
		time.Sleep(100 * time.Millisecond)
	}
	return d.work.Unlock
}

// deleteTopic deletes a topic. The function that it returns creates it again as it was, unless redeliver has done so.
func (d *Driver) deleteTopic(o plan.Word, info *kfake.TopicInfo, partitions int) (heal func(), err error) {
	if err := d.cluster.DeleteTopic(info.Topic); err != nil || !o.Again {
		return nil, err
	}
	settings := make(map[string]string)
	for name, value := range info.Configs {
		if value != nil {
			settings[name] = *value
		}
	}
	return func() { _ = d.cluster.CreateTopic(info.Topic, int32(partitions), settings) }, nil
}

// Deleted implements live.Deleter.
func (d *Driver) Deleted() []live.Copy {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.deleted
	d.deleted = nil
	return all
}

// untilGone carries out an operator's request about a group whose processes have stopped, until the broker has noticed that.
func untilGone(request func(context.Context) error) (err error) {
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = request(ctx)
		cancel()
		if err == nil || errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		time.Sleep(3 * time.Second)
	}
	return err
}

func (d *Driver) expireOffsets(group string) error {
	return untilGone(func(ctx context.Context) error {
		answer, err := d.admin.DeleteGroup(ctx, group)
		if err == nil {
			err = answer.Err
		}
		return err
	})
}

// resetOffsets sets the offsets of the origin to a place in its log, and notes the messages before it: the group reads them no
// more.
func (d *Driver) resetOffsets(o plan.Word, group string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var skipped []live.Copy
	offsets := make(kadm.Offsets)
	for _, p := range d.cluster.PartitionInfos(o.Topic) {
		to := p.LogStartOffset + (p.HighWatermark-p.LogStartOffset)*int64(o.Count)/8
		offsets.AddOffset(o.Topic, p.Partition, to, -1)
		if to == p.LogStartOffset {
			continue
		}
		records, err := d.readPartition(ctx, o.Topic, p.Partition, p.LogStartOffset, to)
		if err != nil {
			return err
		}
		for _, r := range records {
			skipped = append(skipped, live.Copy{At: time.Now(), Body: r.Body, Group: group, Topic: o.Topic, Place: r.Place, Skipped: true})
		}
	}
	d.mu.Lock()
	d.deleted = append(d.deleted, skipped...)
	d.mu.Unlock()
	return untilGone(func(ctx context.Context) error {
		answer, err := d.admin.CommitOffsets(ctx, group, offsets)
		if err == nil {
			err = answer.Error()
		}
		return err
	})
}
