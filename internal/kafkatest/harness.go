// Package kafkatest has helpers for tests on an in-process or a real Kafka. It has the harness of the
// conformance kit for adapters/kafka, and a [Reader].
package kafkatest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
	"github.com/redeliver/redeliver/mq"
)

// Features are the optional features that Kafka supports.
var Features = adaptertest.Features{
	OrderFirstAttempts: true, BinaryHeaders: true, DuplicateHeaders: true, NullBody: true, ForeignHeaders: true,
	CountsCrashes: true, ManyGroups: true, Refuse: true, KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, OrderBlocking: true, KeepsAttemptsInPlace: true, OrderThroughRetries: true, GroupPause: true, NewPause: true,
}

// A small number, because a run of the kit has hundreds of topics.
const partitions = 2

// sessionTimeout is longer than any delay of a heartbeat on a busy machine, so that the group does not remove live
// members. Tests do not wait for it: see killMember.
const sessionTimeout = 30 * time.Second

// dialTimeout is longer than a broker's first answer takes on such a machine. Dialing a cut connection fails at
// once.
const dialTimeout = time.Minute

// Refuse makes the broker refuse records for topics whose names begin with prefix, until restore is called. If it is
// nil, writers to such topics lose their connections.
type Refuse func(prefix string) (restore func())

// New returns the harness for the Kafka at addrs. It must not outlive tb.
func New(tb testing.TB, addrs []string, refuse Refuse) adaptertest.Harness {
	tb.Helper()
	k := &harness{addrs: addrs, guard: &produceGuard{}}
	if refuse == nil {
		refuse = k.guard.refuse
	}
	k.client = k.connect(tb, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	k.admin = kadm.NewClient(k.client)
	return adaptertest.Harness{
		Name: "Kafka", Features: Features, ReadsAhead: true, Compresses: true, MaxHeaders: limits.MaxHeaders - 1,
		Origin: k.origin, Open: k.open, Consume: k.consume, ConsumeBatch: k.consumeBatch, Put: k.put, PutRetries: k.putBack, DeadLetters: k.dead, Received: seen,
		DLQTopic: func(origin, group string) (topic, reader string) {
			return origin + "." + group + wirename.DLQSuffix, group + "-audit"
		},
		Oversized: map[adaptertest.Place]func(testing.TB, string, string) adaptertest.Message{
			adaptertest.Levels: k.oversized("retry"), adaptertest.DLQ: k.oversized("retry", "dlq"),
		},
		Refuse: func(_ testing.TB, origin, group string, what adaptertest.Place) func() {
			if what == adaptertest.DLQ {
				return refuse(origin + "." + group + wirename.DLQSuffix)
			}
			return refuse(origin + "." + group + wirename.RetrySuffix) // and for the levels
		},
	}
}

type harness struct {
	addrs  []string
	guard  *produceGuard
	client *kgo.Client // without redeliver
	admin  *kadm.Client
}

func (k *harness) connect(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(k.addrs...)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

func (k *harness) origin(tb testing.TB, n int) (string, []string) {
	tb.Helper()
	origin := "orders-" + strings.ToLower(rand.Text()[:12])
	MakeTopic(tb, k.admin, partitions, nil, origin)
	groups := []string{"billing-" + origin, "mail-" + origin}
	return origin, groups[:n]
}

func (k *harness) open(_ testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	dialer := newKillableDialer(k.guard)
	config := k.config(cfg)
	config.Brokers, config.Marshaler, config.Sarama = k.addrs, marshaler{}, clientConfig(dialer)
	c, err := kafka.Open(context.Background(), config)
	if err != nil {
		return nil, err
	}
	return service{c, func() { k.killMember(cfg.Group, dialer) }}, nil
}

// config returns the part of the kit's configuration that all forms of a service share.
func (k *harness) config(cfg adaptertest.Config) kafka.Config {
	return kafka.Config{
		Group: cfg.Group, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight,
		NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, RetryPartitions: partitions,
	}
}

// clientConfig returns a configuration with the dialer's connections.
func clientConfig(dialer *killableDialer) *sarama.Config {
	sc := sarama.NewConfig()
	sc.ClientID = dialer.name
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = sessionTimeout, 500*time.Millisecond
	sc.Net.DialTimeout = dialTimeout
	sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, dialer
	return sc
}

func (k *harness) consumeBatch(_ testing.TB, cfg adaptertest.Config, bc redeliver.BatchConfig, fn adaptertest.BatchFunc) (run func(context.Context) error, kill func()) {
	return k.native(cfg, func(ctx context.Context, client sarama.Client) error {
		return kafka.ConsumeBatch(ctx, client, k.config(cfg), []string{cfg.Origin}, bc, func(ctx context.Context, b *kafka.Batch) error {
			return fn(ctx, adaptertest.BatchOf(b))
		})
	})
}

func (k *harness) consume(_ testing.TB, cfg adaptertest.Config, fn func(ctx context.Context, m adaptertest.Message) error) (run func(context.Context) error, kill func()) {
	return k.native(cfg, func(ctx context.Context, client sarama.Client) error {
		return kafka.Consume(ctx, client, k.config(cfg), []string{cfg.Origin}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			return fn(ctx, seenRecord(rec))
		})
	})
}

// native makes a service that calls consume with a client that kill cuts off.
func (k *harness) native(cfg adaptertest.Config, consume func(context.Context, sarama.Client) error) (run func(context.Context) error, kill func()) {
	dialer := newKillableDialer(k.guard)
	return func(ctx context.Context) error {
		client, err := sarama.NewClient(k.addrs, clientConfig(dialer))
		if err != nil {
			return err
		}
		defer client.Close()
		return consume(ctx, client)
	}, func() { k.killMember(cfg.Group, dialer) }
}

// marshaler refuses the kit's undecodable messages.
type marshaler struct{ kafka.DefaultMarshaler }

func (m marshaler) Unmarshal(rec *sarama.ConsumerMessage) (*message.Message, error) {
	if bytes.Equal(rec.Value, []byte(adaptertest.Undecodable)) {
		return nil, errors.New("no such schema")
	}
	return m.DefaultMarshaler.Unmarshal(rec)
}

// oversized lowers the limit of our topics with these suffixes, and returns a larger message that cannot be compressed.
func (k *harness) oversized(suffixes ...string) func(tb testing.TB, origin, group string) adaptertest.Message {
	return func(tb testing.TB, origin, group string) adaptertest.Message {
		tb.Helper()
		const setting, small = "max.message.bytes", "65536"
		// kadm's ListTopics may return an answer of 5 s ago, from before the subscriber created all topics.
		metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(tb.Context(), k.client)
		if err != nil {
			tb.Fatal(err)
		}
		var topics []string
		for _, t := range metadata.Topics {
			ours := func(s string) bool { return strings.HasPrefix(*t.Topic, origin+"."+group+"."+s) }
			if slices.ContainsFunc(suffixes, ours) {
				topics = append(topics, *t.Topic)
			}
		}
		altered, err := k.admin.AlterTopicConfigs(tb.Context(), []kadm.AlterConfig{{Name: setting, Value: kadm.StringPtr(small)}}, topics...)
		for _, a := range altered {
			err = errors.Join(err, a.Err)
		}
		if err != nil || len(altered) < len(suffixes) {
			tb.Fatalf("altering %v: %v", topics, err)
		}
		AwaitSetting(tb, k.admin, setting, small, topics...)
		body := make([]byte, 128<<10)
		_, _ = rand.Read(body)
		return adaptertest.Message{Body: body}
	}
}

type service struct {
	*mq.Client
	kill func()
}

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }

// Kill cuts all connections, and removes the member from its group.
func (s service) Kill() { s.kill() }

func (k *harness) put(tb testing.TB, origin string, msgs ...adaptertest.Message) {
	tb.Helper()
	k.write(tb, origin, msgs)
}

func (k *harness) putBack(tb testing.TB, origin, group string, msgs ...adaptertest.Message) {
	tb.Helper()
	k.write(tb, origin+"."+group+wirename.RetrySuffix, msgs)
}

func (k *harness) write(tb testing.TB, topic string, msgs []adaptertest.Message) {
	tb.Helper()
	recs := make([]*kgo.Record, len(msgs))
	for i, m := range msgs {
		recs[i] = record(m)
		recs[i].Topic, recs[i].Partition = topic, int32(i%partitions)
		if m.Key != nil {
			h := fnv.New32a()
			_, _ = h.Write(m.Key)
			recs[i].Partition = int32(h.Sum32() % partitions)
		}
	}
	ctx, cancel := context.WithTimeout(tb.Context(), adaptertest.Timeout)
	defer cancel()
	client := k.client
	if slices.ContainsFunc(msgs, func(m adaptertest.Message) bool { return len(m.Body) > 50<<20 }) { // it is small on the wire
		client = k.connect(tb, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()),
			kgo.ProducerBatchMaxBytes(400<<20), kgo.BrokerMaxWriteBytes(500<<20), kgo.MaxBufferedBytes(500<<20))
	}
	if err := client.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		tb.Fatalf("writing to %s: %v", topic, err)
	}
}

func record(m adaptertest.Message) *kgo.Record {
	rec := &kgo.Record{Key: m.Key, Value: m.Body}
	if m.ID != "" {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: kafka.UUIDHeader, Value: []byte(m.ID)})
	}
	for _, h := range m.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	for _, h := range m.OwnHeaders {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	return rec
}

// dead reads the DLQ until it has n messages.
func (k *harness) dead(tb testing.TB, origin, group string, n int) (msgs []adaptertest.Message) {
	tb.Helper()
	dlq, err := NewReader(k.addrs, origin+"."+group+wirename.DLQSuffix)
	if err != nil {
		tb.Fatal(err)
	}
	defer dlq.Close()
	ctx, cancel := context.WithTimeout(tb.Context(), adaptertest.Timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := dlq.ReadToEnd(ctx, func(rec *kgo.Record) { msgs = append(msgs, unpack(rec)) })
		if err != nil && ctx.Err() == nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			tb.Fatal(err)
		}
		if len(msgs) >= n {
			return msgs
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return msgs
		}
	}
}

// unpack separates a dead letter's headers: redeliver's begin at the last redeliver-attempt.
func unpack(rec *kgo.Record) adaptertest.Message {
	m := adaptertest.Message{Key: rec.Key, Body: rec.Value}
	begin := len(rec.Headers)
	for i, h := range rec.Headers {
		if h.Key == redeliver.HeaderAttempt {
			begin = i
		}
	}
	for i, h := range rec.Headers {
		if i >= begin {
			m.OwnHeaders = append(m.OwnHeaders, driver.Header{Name: h.Key, Value: string(h.Value)})
		} else {
			add(&m, h.Key, h.Value)
		}
	}
	return m
}

func add(m *adaptertest.Message, name string, value []byte) {
	if name == kafka.UUIDHeader {
		m.ID = string(value)
		return
	}
	m.Headers = append(m.Headers, adaptertest.Header{Name: name, Value: bytes.Clone(value)})
}

func seen(msg *message.Message) adaptertest.Message {
	return seenRecord(kafka.RecordFromContext(msg.Context()))
}

func seenRecord(rec *sarama.ConsumerMessage) adaptertest.Message {
	if rec == nil {
		return adaptertest.Message{}
	}
	m := adaptertest.Message{Key: bytes.Clone(rec.Key), Body: bytes.Clone(rec.Value)}
	for _, h := range rec.Headers {
		add(&m, string(h.Key), h.Value)
	}
	return m
}
