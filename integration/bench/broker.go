package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// cluster is the Kafka that all rows share, seen through franz-go: a client that neither side uses.
type cluster struct {
	addrs  []string
	client *kgo.Client
	admin  *kadm.Client
	prefix string // of all topics and groups of this run of the program
	serial int
	shape  shape // of what is written
	pid    int   // of the broker, once it is known; 0 if it is not
}

// maxBuffered bounds the bytes of large messages that a writer has in flight. Ten thousand records of 1 KiB, which are
// the client's own bound, stay below it.
const maxBuffered = 64 << 20

func dial(ctx context.Context, addrs []string) (*cluster, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedBytes(maxBuffered), kgo.UnknownTopicRetries(50), kgo.MetadataMinAge(20*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("kafka at %v: %w", addrs, err)
	}
	return &cluster{
		addrs: addrs, client: client, admin: kadm.NewClient(client),
		prefix: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
	}, nil
}

func (c *cluster) close() { c.client.Close() }

func (c *cluster) addresses() []string { return c.addrs }

func (c *cluster) version(ctx context.Context) string {
	all, err := c.admin.ApiVersions(ctx)
	if err != nil {
		return "Kafka of an unknown version"
	}
	version := ""
	for _, v := range all {
		version = strings.TrimPrefix(kversion.FromApiVersionsResponse(v.Raw()).VersionGuess(), "v")
	}
	return "Kafka " + version
}

// fresh creates a topic with an unused name, and returns that name and one for the group of each side.
func (c *cluster) fresh(ctx context.Context, row string) (names, error) {
	c.serial++
	base := fmt.Sprintf("%s-%s-%d", c.prefix, row, c.serial)
	n := names{topic: base, ours: base + "-ours", peer: base + "-peer"}
	parts := c.shape.withDefaults().partitions
	_, err := c.admin.CreateTopic(ctx, int32(parts), 1, nil, n.topic)
	if err != nil {
		return n, fmt.Errorf("creating topic %s: %w", n.topic, err)
	}
	// The broker answers before its own metadata has the topic.
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		// ListEndOffsets asks the leaders, so it succeeds only when there are some.
		if ends, err := c.admin.ListEndOffsets(ctx, n.topic); err == nil && ends.Error() == nil && len(ends.Offsets()[n.topic]) == parts {
			return n, nil
		}
		select {
		case <-again.C:
		case <-timer.C:
			return n, fmt.Errorf("topic %s has no leaders 20 s after its creation", n.topic)
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
}

type names struct{ topic, ours, peer string }

// group returns a side's group. Each side in Java has its own, because several may read one topic.
func (n names) group(s side) string {
	switch {
	case s.java():
		return n.peer + "-" + string(s)
	case s == viaRouter || s == byHand || s == share:
		return n.peer + "-" + string(s)
	case s == peer || s == singles || s == keyOrder || s == unordered || s == unseen:
		return n.peer
	default:
		return n.ours
	}
}

// preload writes n messages to a topic.
func (c *cluster) preload(ctx context.Context, topic string, n int) (written, error) {
	w := newShaped(c.shape)
	err := c.produce(ctx, n, func(id uint64) *kgo.Record { return w.record(topic, id) })
	return w.written(), err
}

// produce writes n records and returns when all are confirmed.
func (c *cluster) produce(ctx context.Context, n int, record func(id uint64) *kgo.Record) error {
	var mu sync.Mutex
	var errs []error
	for id := range uint64(n) {
		c.client.Produce(ctx, record(id), func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	if err := c.client.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(errs) > 0 {
		return fmt.Errorf("writing %d messages: %d failed, the first with %w", n, len(errs), errs[0])
	}
	return nil
}

// steady writes rate messages a second for a duration.
func (c *cluster) steady(ctx context.Context, topic string, rate int, d time.Duration) (written, error) {
	w := newShaped(c.shape)
	var mu sync.Mutex
	var failed error
	err := steadily(ctx, rate, d, func(first, end int) error {
		for id := first; id < end; id++ {
			c.client.Produce(ctx, w.record(topic, uint64(id)), func(_ *kgo.Record, err error) {
				if err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			})
		}
		return nil
	})
	if err != nil {
		return written{}, err
	}
	if err := c.client.Flush(ctx); err != nil {
		return written{}, err
	}
	mu.Lock()
	defer mu.Unlock()
	return w.written(), failed
}

// lag returns the number of records of the topics that the group has not committed.
func (c *cluster) lag(ctx context.Context, group string, topics ...string) (int64, error) {
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	starts, err := c.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, fmt.Errorf("reading the offsets of group %s: %w", group, err)
	}
	var behind int64
	ends.Each(func(end kadm.ListedOffset) {
		var at int64
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			at = start.Offset
		}
		if o, ok := committed.Lookup(end.Topic, end.Partition); ok {
			at = max(at, o.At)
		}
		behind += max(0, end.Offset-at)
	})
	return behind, nil
}

// unsettled counts the group's uncommitted records. Nobody reads the DLQ, and other groups' topics do not count.
func (c *cluster) unsettled(ctx context.Context, s spec) (int64, error) {
	if s.Side.spring() {
		return c.unsettledOfSpring(ctx, s)
	}
	if s.Side == share {
		return c.unsettledOfShare(ctx, s)
	}
	topics := []string{s.Topic}
	if s.Side != peer {
		all, err := c.topicsOf(ctx, names{topic: s.Topic})
		if err != nil {
			return 0, err
		}
		topics = topicsReadBy(s, all)
	}
	return c.lag(ctx, s.Group, topics...)
}

// topicsReadBy returns the topics whose offsets our group commits: origin, retry topic and levels. No group commits
// offsets of the DLQ, its state topic or the control topic.
func topicsReadBy(s spec, all []string) []string {
	return slices.DeleteFunc(all, func(t string) bool { return t != s.Topic && !strings.HasPrefix(t, s.Topic+"."+s.Group+".retry") })
}

func (c *cluster) dead(ctx context.Context, s spec) (*contents, error) {
	if s.Side.spring() {
		return c.read(ctx, s.Topic+springDLT)
	}
	return c.read(ctx, s.Topic+"."+s.Group+".dlq")
}

// topicsOf are the topics of one subscription: its origin and those that redeliver or Spring made for it.
func (c *cluster) topicsOf(ctx context.Context, n names) ([]string, error) {
	all, err := c.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Names(), func(name string) bool {
		return name != n.topic && !strings.HasPrefix(name, n.topic+".") && name != n.topic+springRetry && name != n.topic+springDLT
	}), nil
}

// drop deletes the topics and groups of a run, so that the broker stays small.
func (c *cluster) drop(ctx context.Context, n names) error {
	topics, err := c.topicsOf(ctx, n)
	if err != nil {
		return err
	}
	_, err = c.admin.DeleteTopics(ctx, topics...)
	groups, bad := c.admin.ListGroups(ctx)
	err = errors.Join(err, bad)
	for _, group := range groups.Groups() {
		if !strings.HasPrefix(group, n.topic+"-") {
			continue
		}
		// A group whose static member was killed is not empty yet.
		_, bad := c.admin.DeleteGroup(ctx, group)
		if bad != nil && !errors.Is(bad, kerr.GroupIDNotFound) && !errors.Is(bad, kerr.NonEmptyGroup) {
			err = errors.Join(err, bad)
		}
	}
	return err
}
