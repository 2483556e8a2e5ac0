package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

const (
	kafkaGroup      = "pay"
	kafkaPartitions = 4
)

// onKafka is a broker that uses franz-go.
type onKafka struct {
	addrs  []string
	client *kgo.Client
	admin  *kadm.Client
	is     string
}

func dialKafka(ctx context.Context) (broker, error) {
	addrs := strings.Split(os.Getenv(brokers.EnvKafka), ",")
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ProducerLinger(0), kgo.UnknownTopicRetries(50), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(client)
	all, err := admin.ApiVersions(ctx)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("asking %v (%s) for its version: %w", addrs, brokers.EnvKafka, err)
	}
	k := &onKafka{addrs: addrs, client: client, admin: admin}
	for _, v := range all {
		k.is = "Kafka " + strings.TrimPrefix(kversion.FromApiVersionsResponse(v.Raw()).VersionGuess(), "v")
	}
	return k, nil
}

func (k *onKafka) version() string { return k.is }

func (k *onKafka) prepare(ctx context.Context, topic string) error {
	names := []string{topic, poisonOf(topic)}
	for _, name := range names {
		if _, err := k.admin.CreateTopic(ctx, kafkaPartitions, 1, nil, name); err != nil {
			return fmt.Errorf("creating %s: %w", name, err)
		}
	}
	return kafkatest.AwaitTopics(ctx, k.admin, names...)
}

func (k *onKafka) write(ctx context.Context, topic string, first, end int) error {
	var records []*kgo.Record
	for id := first; id < end; id++ {
		records = append(records, &kgo.Record{
			Topic: topic, Key: fmt.Appendf(nil, "c-%02d", id%keys), Value: body(id),
			Headers: []kgo.RecordHeader{{Key: uuidHeader, Value: []byte(uuidOf(id))}},
		})
	}
	return k.client.ProduceSync(ctx, records...).FirstErr()
}

func (k *onKafka) dead(ctx context.Context, topic string) (map[int]int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found := make(map[int]int)
	err := kafkatest.Read(ctx, k.addrs, func(r *kgo.Record) {
		id := -1
		for _, h := range r.Headers {
			if n, err := idOf(string(h.Value)); h.Key == uuidHeader && err == nil {
				id = n
			}
		}
		found[id]++
	}, topic)
	return found, err
}

func (k *onKafka) dlq(topic string) string { return topic + "." + kafkaGroup + ".dlq" }

func (k *onKafka) close() { k.client.Close() }

func (k *onKafka) ours(_ string, p redeliver.Policy, sink redeliver.Sink) (setup, error) {
	client, err := kafka.Open(context.Background(), kafka.Config{Brokers: k.addrs, Group: kafkaGroup, Policy: p, Sink: sink})
	if err != nil {
		return setup{}, err
	}
	return setup{
		sub: client.Subscriber(), close: func() { _ = client.Close(context.Background()) },
		settings: "defaults",
	}, nil
}

// peer returns watermill-kafka with its defaults and Offsets.Initial, which is all that its documentation sets.
func (k *onKafka) peer(topic string) (setup, error) {
	cfg := wkafka.DefaultSaramaSubscriberConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers: k.addrs, Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: cfg, ConsumerGroup: kafkaGroup + "-" + topic,
	}, watermill.NopLogger{})
	if err != nil {
		return setup{}, err
	}
	pub, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: k.addrs, Marshaler: wkafka.DefaultMarshaler{}}, watermill.NopLogger{})
	if err != nil {
		return setup{}, errors.Join(err, sub.Close())
	}
	return setup{
		sub: sub, pub: pub, settings: fmt.Sprintf("watermill-kafka's defaults, Offsets.Initial oldest; one message of each of the %d partitions in flight", kafkaPartitions),
		close: func() {
			_ = sub.Close()
			_ = pub.Close()
		},
	}, nil
}
