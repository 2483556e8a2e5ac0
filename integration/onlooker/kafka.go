// Package onlooker is what brokers themselves say of redeliver's topics and queues, asked by clients that are not its
// own: how much a group has not settled, and what is in a DLQ.
package onlooker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka returns how far a group's commits are behind the ends of a topic, and of those on which its messages wait, whose
// names begin with own and ".retry".
func Kafka(ctx context.Context, admin *kadm.Client, group, topic, own string) (unsettled int64, detail string, err error) {
	all, err := admin.ListTopics(ctx)
	if err != nil {
		return 0, "", err
	}
	var topics []string
	for _, name := range all.Names() {
		if name == topic || strings.HasPrefix(name, own+".retry") {
			topics = append(topics, name)
		}
	}
	ends, err := checked(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return 0, "", err
	}
	starts, err := checked(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return 0, "", err
	}
	committed, err := checked(admin.FetchOffsets(ctx, group))
	if err != nil {
		return 0, "", err
	}
	var behind strings.Builder
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(-1)
		if c, ok := committed.Lookup(end.Topic, end.Partition); ok {
			at = c.At
		}
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			at = max(at, start.Offset)
		}
		if at != end.Offset {
			unsettled += max(1, end.Offset-at) // a commit beyond the end is wrong, too
			fmt.Fprintf(&behind, " %s[%d] %d of %d", strings.TrimPrefix(end.Topic, topic), end.Partition, at, end.Offset)
		}
	})
	return unsettled, behind.String(), nil
}

// checked adds what was said of single partitions to an answer's error.
func checked[Answer interface{ Error() error }](a Answer, err error) (Answer, error) {
	if err == nil {
		err = a.Error()
	}
	return a, err
}

// KafkaTopic reads a topic from its beginning. It is one goroutine's.
type KafkaTopic struct {
	addrs  []string
	admin  *kadm.Client
	name   string
	client *kgo.Client // made when the topic is there
	read   map[int32]int64
}

// NewKafkaTopic makes a reader, which is to be closed.
func NewKafkaTopic(addrs []string, admin *kadm.Client, name string) *KafkaTopic {
	return &KafkaTopic{addrs: addrs, admin: admin, name: name, read: make(map[int32]int64)}
}

// Close ends it.
func (k *KafkaTopic) Close() {
	if k.client != nil {
		k.client.Close()
	}
}

// More returns the records that have come since the last time, up to the present end of the topic.
func (k *KafkaTopic) More(ctx context.Context) ([]*kgo.Record, error) {
	ends, err := checked(k.admin.ListEndOffsets(ctx, k.name))
	if err != nil {
		return nil, fmt.Errorf("asking for the end of %s: %w", k.name, err)
	}
	if k.client == nil {
		if k.client, err = kgo.NewClient(kgo.SeedBrokers(k.addrs...), kgo.ConsumeTopics(k.name),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	behind := func() (behind bool) {
		ends.Each(func(o kadm.ListedOffset) { behind = behind || k.read[o.Partition] < o.Offset })
		return behind
	}
	var fresh []*kgo.Record
	for behind() {
		fetches := k.client.PollFetches(ctx)
		for r := range fetches.RecordsAll() {
			k.read[r.Partition] = r.Offset + 1
			fresh = append(fresh, r)
		}
		if err := ctx.Err(); err != nil {
			return fresh, fmt.Errorf("reading %s: %w", k.name, err)
		}
	}
	return fresh, nil
}
