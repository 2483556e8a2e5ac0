package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// topicSize is the size of the delay and retry topics of an origin, for all its groups, in one replica.
type topicSize struct {
	records, bytes int64
}

func (w topicSize) bytesPerRecord() float64 { return float64(w.bytes) / float64(w.records) }

// waitsOn reports whether messages of an origin wait on a topic, in whatever group.
func waitsOn(topic, origin string) bool {
	rest, ours := strings.CutPrefix(topic, origin+".")
	return ours && (strings.HasSuffix(rest, ".retry") || strings.Contains(rest, ".retry."))
}

// measureSize asks how large the files of the delay and retry topics of an origin are. It returns nil when nothing was written
// to them, and when something was deleted there, because the broker does not report how much.
func (c *cluster) measureSize(ctx context.Context, origin string) (*topicSize, error) {
	all, err := c.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var topics []string
	for _, t := range all.Names() {
		if waitsOn(t, origin) {
			topics = append(topics, t)
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	before, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	bytes, err := c.size(ctx, func(topic string) bool { return waitsOn(topic, origin) })
	if err != nil {
		return nil, err
	}
	after, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	starts, err := c.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	// While records are being written, the size of the files belongs to a number in between.
	records := (offsetsOf(before) + offsetsOf(after)) / 2
	if offsetsOf(starts) > 0 || records == 0 {
		return nil, nil
	}
	return &topicSize{records: records, bytes: bytes}, nil
}

func offsetsOf(all kadm.ListedOffsets) (sum int64) {
	all.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum
}

// size returns the total size of some topics' files on all brokers: on a cluster of one, that is one replica.
func (c *cluster) size(ctx context.Context, of func(topic string) bool) (bytes int64, err error) {
	dirs, err := c.admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the size of the topics: %w", err)
	}
	for _, broker := range dirs {
		broker.EachPartition(func(p kadm.DescribedLogDirPartition) {
			if of(p.Topic) {
				bytes += p.Size
			}
		})
	}
	return bytes, nil
}

// sizeWatcher measures sizes during a run, because after half a minute a group begins to delete settled records.
type sizeWatcher struct {
	cluster *cluster
	last    *topicSize
	commits int64 // of all groups, since the beginning
	err     error
}

const (
	measureEvery = 3 * time.Second
	commitsTopic = "__consumer_offsets" // where Kafka keeps what groups commit
)

func isCommits(topic string) bool { return topic == commitsTopic }

// watch measures until ctx ends, and then once more. The caller waits for its end before it reads the result.
func (s *sizeWatcher) watch(ctx context.Context, origin string) {
	began, err := s.cluster.size(ctx, isCommits)
	if s.err = err; err != nil {
		return
	}
	again := time.NewTicker(measureEvery)
	defer again.Stop()
	for open := true; open; {
		select {
		case <-again.C:
		case <-ctx.Done():
			open = false
		}
		w, err := s.cluster.measureSize(context.WithoutCancel(ctx), origin)
		if err != nil {
			s.err = err
			return
		}
		if w != nil {
			s.last = w
		}
	}
	ended, err := s.cluster.size(context.WithoutCancel(ctx), isCommits)
	s.commits, s.err = ended-began, err
}
