// Package floor is the smallest program by hand on sarama that does the writes of a service with retries: a message
// that fails goes to a level, back to its handler when it is due, and to the DLQ when its retries run out. The bench
// shows what everything else that redeliver does costs beside it.
//
// It keeps the necessary rules: an offset is committed only when all below it are settled, a message is settled only
// when its copy is confirmed, no retry is early, and memory is bounded. It has no policy, no order of
// keys, no timeout, no recovery from a panic, no events, no hops, and no settlement set: after a kill everything above
// the lowest unsettled record runs again.
//
// The life of a message: lane.read -> (lane.held until it is due) -> worker.run -> consumer.write -> tracker.settle ->
// lane.commit.
package floor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Config configures the consumer. All fields are required.
type Config struct {
	Brokers []string
	Topic   string
	Group   string
	Level   time.Duration // between two attempts
	Retries int
	Workers int
	// Handle is the handler. attempts have ended before; due is when this one was due, zero for the first.
	Handle func(value []byte, attempts int, due time.Time) error
	Dead   func() // the DLQ has a message
	Ready  func() // the partitions are assigned
}

// The names are those of redeliver, so that the same reader verifies both.
func (c *Config) level() string { return fmt.Sprintf("%s.%s.retry.%s", c.Topic, c.Group, c.Level) }
func (c *Config) dlq() string   { return c.Topic + "." + c.Group + ".dlq" }

// newSaramaConfig has the settings of adapters/kafka.
func newSaramaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Interval = commitEvery
	cfg.Consumer.MaxWaitTime = 50 * time.Millisecond // how long a paused partition needs to go on
	cfg.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Producer.Return.Successes = true
	return cfg
}

// consumer is one member of the group. It implements sarama.ConsumerGroupHandler.
type consumer struct {
	Config
	group    sarama.ConsumerGroup
	producer sarama.AsyncProducer
	first    chan *entry // for workers, first deliveries and retries apart: one must not starve the other
	again    chan *entry
}

// Run consumes until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := createTopics(&cfg); err != nil {
		return err
	}
	// The producer has a client of its own: its writes must not wait behind fetches.
	producer, err := sarama.NewAsyncProducer(cfg.Brokers, newSaramaConfig())
	if err != nil {
		return err
	}
	group, err := sarama.NewConsumerGroup(cfg.Brokers, cfg.Group, newSaramaConfig())
	if err != nil {
		return errors.Join(err, producer.Close())
	}
	c := &consumer{Config: cfg, group: group, producer: producer, first: make(chan *entry, maxAhead), again: make(chan *entry, maxAhead)}
	var workers, confirming sync.WaitGroup
	for _, in := range []chan *entry{c.first, c.again} {
		for range cfg.Workers {
			workers.Go(func() { c.work(in) })
		}
	}
	confirming.Go(c.confirm)
	confirming.Go(func() { c.writeAgain(ctx) })
	for ctx.Err() == nil && err == nil {
		err = group.Consume(ctx, []string{cfg.Topic, cfg.level()}, c)
	}
	err = errors.Join(err, group.Close())
	close(c.first)
	close(c.again)
	workers.Wait()
	producer.AsyncClose()
	confirming.Wait()
	return err
}

// createTopics makes the level and the DLQ, with as many partitions as the topic has.
func createTopics(cfg *Config) error {
	admin, err := sarama.NewClusterAdmin(cfg.Brokers, newSaramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	described, err := admin.DescribeTopics([]string{cfg.Topic})
	if err != nil {
		return err
	}
	if err := described[0].Err; err != sarama.ErrNoError {
		return fmt.Errorf("describing %s: %w", cfg.Topic, err)
	}
	forever := "-1"
	for _, topic := range []string{cfg.level(), cfg.dlq()} {
		err := admin.CreateTopic(topic, &sarama.TopicDetail{
			NumPartitions: int32(len(described[0].Partitions)), ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &forever},
		}, false)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return fmt.Errorf("creating %s: %w", topic, err)
		}
	}
	return nil
}

// Setup implements [sarama.ConsumerGroupHandler].
func (c *consumer) Setup(sarama.ConsumerGroupSession) error {
	c.Ready()
	return nil
}

// Cleanup implements [sarama.ConsumerGroupHandler].
func (c *consumer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// work runs handlers.
func (c *consumer) work(in <-chan *entry) {
	for e := range in {
		if err := c.Handle(e.record.Value, e.attempts, e.due); err != nil {
			c.write(e, err)
		} else {
			e.lane.tracker.settle(e)
		}
	}
}

// write sends the copy of a message that has failed to the level, or to the DLQ. It blocks while the producer is full.
func (c *consumer) write(e *entry, cause error) {
	m := &sarama.ProducerMessage{Value: sarama.ByteEncoder(e.record.Value), Metadata: e}
	if e.record.Key != nil {
		m.Key = sarama.ByteEncoder(e.record.Key)
	}
	now := time.Now()
	if e.attempts < c.Retries {
		m.Topic = c.level()
		m.Headers = appendWaiting(usersOf(e.record), e.attempts+1, now.Add(c.Level))
	} else {
		m.Topic = c.dlq()
		m.Headers = appendDead(usersOf(e.record), e, c.Group, cause, now)
	}
	c.producer.Input() <- m
}

// confirm settles the messages whose copies are confirmed.
func (c *consumer) confirm() {
	dlq := c.dlq()
	for m := range c.producer.Successes() {
		e := m.Metadata.(*entry) //nolint:forcetypeassert // write has put it there.
		e.lane.tracker.settle(e)
		if m.Topic == dlq {
			c.Dead()
		}
	}
}

// writeAgain tries again what was not written. It must not wait for the producer, which waits for it.
func (c *consumer) writeAgain(ctx context.Context) {
	for failed := range c.producer.Errors() {
		e := failed.Msg.Metadata.(*entry) //nolint:forcetypeassert // As above.
		time.AfterFunc(100*time.Millisecond, func() {
			if ctx.Err() == nil { // else it is not settled, and comes again
				c.write(e, errors.New("its copy was not written"))
			}
		})
	}
}
