//go:build prove

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// nodes is the number of Kafka's nodes.
const nodes = 3

// kafkaSystem is the suite's view of a cluster, through franz-go alone.
type kafkaSystem struct {
	cluster    *brokers.KafkaCluster
	gates      []map[string]*gate // by node and listener
	corruptors []*corruptor       // in front of the clients' listener, by node
	client     *kgo.Client
	admin      *kadm.Client
}

// kafkaSession is the time after which a dead member is removed.
const kafkaSession = 4 * time.Second

func newKafkaSystem(t *testing.T, loads []history.Load) *kafkaSystem {
	t.Helper()
	k := &kafkaSystem{}
	for range nodes {
		k.gates = append(k.gates, make(map[string]*gate))
	}
	k.cluster = brokers.OwnKafkaCluster(t, nodes, brokers.KafkaClusterOptions{
		StartTimeout: startTimeout,
		Via: func(node int, listener, address string) (string, error) {
			if listener == brokers.ClusterClients {
				l := newCorruptor(t, address)
				k.corruptors = append(k.corruptors, l)
				address = l.address()
			}
			g := newGate(t, fmt.Sprintf("%s of node %d", listener, node), address)
			k.gates[node-1][listener] = g
			return g.address(), nil
		},
	})
	var err error
	k.client, err = kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(k.cluster.Addrs()...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.MetadataMinAge(250*time.Millisecond), kgo.MetadataMaxAge(5*time.Second), kgo.ProducerLinger(0),
		kgo.DialTimeout(3*time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.ProduceRequestTimeout(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.client.Close)
	k.admin = kadm.NewClient(k.client)
	for _, load := range loads {
		if _, err := k.admin.CreateTopic(t.Context(), 6, nodes, nil, load.Name); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *kafkaSystem) consumer(load history.Load) consumerConfig {
	return consumerConfig{Broker: "kafka", Addrs: k.cluster.Addrs(), Topic: load.Name, Group: group(load)}
}

// own returns the prefix of redeliver's topics of a load. The dot of the group is escaped.
func (k *kafkaSystem) own(load history.Load) string { return load.Name + ".g_2e" + load.Name }

func (k *kafkaSystem) write(ctx context.Context, load history.Load, b body, value []byte, confirmed func(partition int32, offset int64)) {
	rec := &kgo.Record{Topic: load.Name, Key: []byte(b.Key), Value: value}
	k.client.Produce(ctx, rec, func(r *kgo.Record, err error) {
		if err == nil {
			confirmed(r.Partition, r.Offset)
		}
	})
}

func (k *kafkaSystem) flush(ctx context.Context) error { return k.client.Flush(ctx) }

// dead reads the whole DLQ.
func (k *kafkaSystem) dead(ctx context.Context, load history.Load) (lines []history.Line, err error) {
	err = kafkatest.Read(ctx, k.cluster.Addrs(), func(r *kgo.Record) {
		headers := make(map[string]string)
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		lines = append(lines, deadLetterLine(load, r.Value, func(name string) string { return headers["redeliver-"+name] }))
	}, k.own(load)+".dlq")
	return lines, err
}

// deadLetterLine converts a dead letter. field returns a field by its name on the wire, without redeliver's prefix.
func deadLetterLine(load history.Load, value []byte, field func(string) string) history.Line {
	var b body
	_ = json.Unmarshal(value, &b) // without an id it counts as unknown
	attempts, _ := strconv.Atoi(field("attempt"))
	return history.Line{
		Kind: history.Dead, Load: load.Name, ID: b.ID, Name: field("id"), Attempt: attempts, Reason: field("reason"),
		Sum: crc32.ChecksumIEEE(value),
	}
}

func (k *kafkaSystem) unsettled(ctx context.Context, load history.Load) (int64, string, error) {
	return brokerstate.Kafka(ctx, k.admin, group(load), load.Name, k.own(load))
}

// lanes returns the faults of the network and of the nodes.
func (k *kafkaSystem) lanes() []lane {
	network := lane{name: "way to node"}
	for _, x := range toxics {
		network.kinds = append(network.kinds, x.fault(nodes, func(node int) []*gate {
			g := k.gates[node]
			if x.name == "partition" || x.name == "standstill" || x.name == "latency" {
				return []*gate{g[brokers.ClusterClients], g[brokers.ClusterReplicas], g[brokers.ClusterController]}
			}
			return []*gate{g[brokers.ClusterClients]}
		}))
	}
	network.kinds = append(network.kinds, kind{"corrupted reads", nodes, func(_ context.Context, s step) (func(context.Context) error, error) {
		k.corruptors[s.target].lying.Store(true)
		return func(context.Context) error { k.corruptors[s.target].lying.Store(false); return nil }, nil
	}})
	return []lane{network, {"node", []kind{
		{"node killed", nodes, k.kill},
		{"node frozen", nodes, func(_ context.Context, s step) (func(context.Context) error, error) {
			n := k.cluster.Nodes()[s.target]
			return func(context.Context) error { return n.Resume() }, n.Suspend()
		}},
		{"disk full", nodes, k.fill},
		{"leader killed", 1, func(ctx context.Context, s step) (func(context.Context) error, error) {
			s.target = k.leader(ctx, s.size)
			return k.kill(ctx, s)
		}},
		{"leaders moved", 1, func(ctx context.Context, _ step) (func(context.Context) error, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, _ = k.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil) // another fault may prevent it
			return nil, nil
		}},
	}, nodeRest}}
}

func (k *kafkaSystem) kill(_ context.Context, s step) (func(context.Context) error, error) {
	n := k.cluster.Nodes()[s.target]
	return n.Start, n.Kill()
}

// fill prevents a node's files from growing. The node shuts itself down, because its only disk has failed.
func (k *kafkaSystem) fill(_ context.Context, s step) (func(context.Context) error, error) {
	n := k.cluster.Nodes()[s.target]
	return func(ctx context.Context) error {
		for n.Ended() == nil {
			if !consumer.Pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s still runs although its disk is full: %w", n, context.Cause(ctx))
			}
		}
		return n.Start(ctx)
	}, n.LimitFiles(16 << 10)
}

// leader returns the node that leads a partition of the first load, counted from 0. It returns any node if none
// answers.
func (k *kafkaSystem) leader(ctx context.Context, size int) int {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if all, err := k.admin.ListTopics(ctx); err == nil {
		topics := all.Sorted()
		if len(topics) > 0 {
			t := topics[size%len(topics)]
			if p, ok := t.Partitions[0]; ok && p.Leader > 0 {
				return int(p.Leader) - 1
			}
		}
	}
	return size % nodes
}

// connectKafka opens the adapter.
func connectKafka(ctx context.Context, cfg consumerConfig, sink redeliver.Sink) (consumer.Client, error) {
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = kafkaSession, kafkaSession/8
	sc.Metadata.RefreshFrequency = 10 * time.Second
	if cfg.MaxWait > 0 {
		sc.Net.DialTimeout, sc.Net.ReadTimeout, sc.Net.WriteTimeout = cfg.MaxWait, cfg.MaxWait, cfg.MaxWait
	}
	client, err := kafka.Open(ctx, kafka.Config{
		Brokers: cfg.Addrs, Group: cfg.Group, Policy: cfg.policy(), Sarama: sc, Sink: sink,
		MaxInFlight: 20, DrainTimeout: 2 * time.Second, SendTimeout: cfg.MaxWait,
	})
	if err != nil {
		return consumer.Client{}, err
	}
	return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
}
