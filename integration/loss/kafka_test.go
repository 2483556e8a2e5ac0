package loss

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// kafkaSystem is the suite's view of Kafka, through franz-go alone.
type kafkaSystem struct {
	addrs  []string
	broker *brokers.Broker // nil if the suite may not restart it
	topic  string
	client *kgo.Client
	admin  *kadm.Client

	dlq   *kafkatest.Reader
	found []deadLetter
}

// newKafka prepares a topic with that number of partitions. own is nil for a broker that others use, too.
func newKafka(t *testing.T, addrs []string, own *brokers.Broker, topic string, partitions int32) *kafkaSystem {
	t.Helper()
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k := &kafkaSystem{addrs: addrs, broker: own, topic: topic, client: client, admin: kadm.NewClient(client)}
	if k.dlq, err = kafkatest.NewReader(addrs, k.base()+".dlq"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.dlq.Close)
	kafkatest.MakeTopic(t, k.admin, partitions, nil, topic)
	return k
}

// group returns the name of the group. Its dot is escaped in a topic's name; see docs/reference/names.md.
func (k *kafkaSystem) group() string { return "g." + k.topic }
func (k *kafkaSystem) base() string  { return k.topic + ".g_2e" + k.topic }

func (k *kafkaSystem) consumer() consumerConfig {
	return consumerConfig{Broker: "kafka", Addrs: k.addrs, Topic: k.topic, Group: k.group()}
}

func (k *kafkaSystem) write(ctx context.Context, items []*item) error {
	records := make([]*kgo.Record, len(items))
	byRecord := make(map[*kgo.Record]*item, len(items))
	for i, it := range items {
		rec := &kgo.Record{Topic: k.topic, Key: it.key, Value: it.value}
		for _, h := range it.headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.key, Value: h.value})
		}
		records[i], byRecord[rec] = rec, it
	}
	for _, r := range k.client.ProduceSync(ctx, records...) {
		if r.Err != nil {
			return fmt.Errorf("writing to %s: %w", k.topic, r.Err)
		}
		it := byRecord[r.Record]
		it.place = fmt.Sprintf("%s/%d/%d", k.topic, r.Record.Partition, r.Record.Offset)
		it.at = r.Record.Timestamp
		it.recordID = fmt.Sprintf("%s@%d", it.place, it.at.UnixMilli())
	}
	return nil
}

// dead returns all messages that are in the DLQ now.
func (k *kafkaSystem) dead(ctx context.Context) ([]deadLetter, error) {
	err := k.dlq.ReadToEnd(ctx, func(r *kgo.Record) { k.found = append(k.found, deadLetterOf(r)) })
	return k.found, err
}

func deadLetterOf(r *kgo.Record) deadLetter {
	l := deadLetter{key: r.Key, value: r.Value, meta: make(map[string]string)}
	for _, h := range r.Headers {
		if name, ok := strings.CutPrefix(h.Key, "redeliver-"); ok {
			l.meta[name] = string(h.Value)
			continue
		}
		if h.Key == headerID {
			l.id = string(h.Value)
		}
		l.headers = append(l.headers, header{h.Key, h.Value})
	}
	l.place = l.meta["origin"] + "/" + l.meta["origin-partition"] + "/" + l.meta["origin-offset"]
	return l
}

func (k *kafkaSystem) unsettled(ctx context.Context) (int64, string, error) {
	return brokerstate.Kafka(ctx, k.admin, k.group(), k.topic, k.base())
}

// restart kills the broker and starts it again.
func (k *kafkaSystem) restart(ctx context.Context, down time.Duration) error {
	if err := k.broker.Kill(); err != nil {
		return err
	}
	select {
	case <-time.After(down): // the planned time without a broker
	case <-ctx.Done():
		return ctx.Err()
	}
	return k.broker.Start(ctx)
}
