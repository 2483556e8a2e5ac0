package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/rocketmq"
)

// rocket is a RocketMQ, seen through a client that is not its own.
type rocket struct {
	server *brokers.Broker
	client *rocketmq.Client
	prefix string // of all topics and groups of this row
	serial int
	group  string // the last that was made
}

// rocketQueues is the number of queues of a topic, the same as that of the partitions of a Kafka topic.
const rocketQueues = partitions

// retryQueues returns how many queues the retry topic of a group has.
func (s spec) retryQueues() int {
	if s.Side == rocketTuned {
		return rocketQueues
	}
	return 1
}

// openRocket starts a RocketMQ for one row, or uses the one in the environment. It does not run during the other
// rows: it is busy even when nobody uses it.
func openRocket(ctx context.Context, e *experiment) (*rocket, error) {
	server, err := brokers.RocketMQ(ctx, brokers.RocketMQOptions{Logf: e.sayf})
	if err != nil {
		return nil, err
	}
	r := &rocket{server: server, prefix: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36)}
	if r.client, err = rocketmq.Dial(ctx, server.Addrs()[0]); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	if err := r.checkDelays(ctx); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// stop also ends the server, unless it is somebody else's.
func (r *rocket) stop() error {
	r.client.Close()
	return errors.Join(r.server.Stop(), os.RemoveAll(rocketLogs()))
}

// checkDelays refuses a broker whose retries would wait differently from ours.
func (r *rocket) checkDelays(ctx context.Context) error {
	settings, err := r.client.Settings(ctx)
	if err != nil {
		return err
	}
	delays, err := rocketmq.Delays(settings["messageDelayLevel"])
	if err != nil {
		return err
	}
	// The first retry takes the third level, each further one the next.
	const first = 3
	for level := first; level < first+retries; level++ {
		if level > len(delays) || delays[level-1] != time.Second {
			return fmt.Errorf("the broker's messageDelayLevel is %q, and retries take the levels %d to %d: for this row all of them must be 1s, "+
				"as withbrokers --rocketmq sets it", settings["messageDelayLevel"], first, first+retries-1)
		}
	}
	return nil
}

func (r *rocket) close() { r.client.Close() }

func (r *rocket) addresses() []string { return r.server.Addrs() }

func (r *rocket) version(ctx context.Context) string {
	v, err := r.client.Version(ctx)
	if err != nil {
		return "RocketMQ of an unknown version"
	}
	return "RocketMQ " + strings.ReplaceAll(strings.TrimPrefix(v, "V"), "_", ".")
}

// fresh returns names that nobody has used yet: of a topic, which is created, and of a group for each side.
func (r *rocket) fresh(ctx context.Context, row string) (names, error) {
	r.serial++
	base := fmt.Sprintf("%s-%s-%d", r.prefix, row, r.serial)
	n := names{topic: base, ours: base + "-ours", peer: base + "-peer"}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return n, r.client.CreateTopic(ctx, n.topic, rocketQueues)
}

// prepare makes the group of a side, and the topic of its retries: a client that does not find that looks for it again
// only after half a minute.
func (r *rocket) prepare(ctx context.Context, s spec) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r.group = s.Group
	return r.client.CreateGroup(ctx, s.Group, s.retryQueues())
}

// producing collects the results of pending writes.
type producing struct {
	rocket *rocket
	topic  string
	writer *writer
	all    sync.WaitGroup
	mu     sync.Mutex
	err    error
}

func (r *rocket) producing(topic string) *producing {
	return &producing{rocket: r, topic: topic, writer: newWriter()}
}

// write writes the message of an id. Ids are spread over the queues, as keys are over Kafka's partitions.
func (p *producing) write(ctx context.Context, id int) {
	p.all.Add(1)
	value := p.writer.value(uint64(id))
	p.rocket.client.Produce(ctx, p.topic, id%rocketQueues, string(uuidOf(uint64(id))), value, func(err error) {
		if err != nil {
			p.mu.Lock()
			p.err = err
			p.mu.Unlock()
		}
		p.all.Done()
	})
}

// finish waits until all is confirmed.
func (p *producing) finish() (written, error) {
	p.all.Wait()
	return p.writer.written(), p.err
}

func (r *rocket) preload(ctx context.Context, topic string, n int) (written, error) {
	p := r.producing(topic)
	for id := range n {
		p.write(ctx, id)
	}
	return p.finish()
}

func (r *rocket) steady(ctx context.Context, topic string, rate int, d time.Duration) (written, error) {
	p := r.producing(topic)
	err := steadily(ctx, rate, d, func(first, end int) error {
		for id := first; id < end; id++ {
			p.write(ctx, id)
		}
		return nil
	})
	w, bad := p.finish()
	return w, errors.Join(err, bad)
}

// unsettled counts what the group has not committed on its topic and its retry topic.
func (r *rocket) unsettled(ctx context.Context, s spec) (int64, error) {
	var left int64
	for topic, queues := range map[string]int{s.Topic: rocketQueues, rocketmq.RetryTopic(s.Group): s.retryQueues()} {
		ends, err := r.client.Ends(ctx, topic, queues)
		if err != nil {
			return 0, err
		}
		committed, err := r.client.Committed(ctx, s.Group, topic, queues)
		if err != nil {
			return 0, err
		}
		for q, end := range ends {
			left += end - committed[q]
		}
	}
	return left, nil
}

// dead reads the DLQ, which has one queue.
func (r *rocket) dead(ctx context.Context, s spec) (*contents, error) {
	found := &contents{distinct: make(map[uint64]int)}
	err := r.client.Read(ctx, rocketmq.DLQ(s.Group), 1, func(m rocketmq.Message) {
		found.add(m.Body)
		if m.Stored.After(found.last) {
			found.last = m.Stored
		}
	})
	return found, err
}

func (r *rocket) drop(ctx context.Context, n names) error {
	return r.client.Drop(ctx, r.group, n.topic)
}
