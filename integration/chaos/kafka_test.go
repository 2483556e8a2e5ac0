package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/chaos/history"
)

// nodes is how many nodes Kafka has.
const nodes = 3

// kafkaStage is a cluster as everybody but redeliver meets it, by franz-go alone.
type kafkaStage struct {
	cluster *brokers.KafkaCluster
	gates   []map[string]*gate // by node and listener
	liars   []*liar            // before the clients' listener, by node
	client  *kgo.Client
	admin   *kadm.Client
}

// kafkaSession is when a dead member is missed.
const kafkaSession = 4 * time.Second

func newKafkaStage(t *testing.T, loads []history.Load) *kafkaStage {
	t.Helper()
	k := &kafkaStage{}
	for range nodes {
		k.gates = append(k.gates, make(map[string]*gate))
	}
	k.cluster = brokers.OwnKafkaCluster(t, nodes, brokers.KafkaClusterOptions{
		StartTimeout: startTimeout,
		Via: func(node int, listener, address string) (string, error) {
			if listener == brokers.ClusterClients {
				l := newLiar(t, address)
				k.liars = append(k.liars, l)
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

func (k *kafkaStage) consumer(load history.Load) consumerConfig {
	return consumerConfig{Broker: "kafka", Addrs: k.cluster.Addrs(), Topic: load.Name, Group: group(load)}
}

// own is how our topics of a load begin; the dot of the group is written so.
func (k *kafkaStage) own(load history.Load) string { return load.Name + ".g_2e" + load.Name }

func (k *kafkaStage) write(ctx context.Context, load history.Load, b body, value []byte, confirmed func(partition int32, offset int64)) {
	rec := &kgo.Record{Topic: load.Name, Key: []byte(b.Key), Value: value}
	k.client.Produce(ctx, rec, func(r *kgo.Record, err error) {
		if err == nil {
			confirmed(r.Partition, r.Offset)
		}
	})
}

func (k *kafkaStage) flush(ctx context.Context) error { return k.client.Flush(ctx) }

// dead reads the whole DLQ.
func (k *kafkaStage) dead(ctx context.Context, load history.Load) ([]history.Line, error) {
	topic := k.own(load) + ".dlq"
	ends, err := k.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the end of %s: %w", topic, err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(k.cluster.Addrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var lines []history.Line
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", topic, err)
		}
		for r := range fetches.RecordsAll() {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			headers := make(map[string]string)
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			lines = append(lines, letter(load, r.Value, func(name string) string { return headers["redeliver-"+name] }))
		}
	}
	return lines, nil
}

// letter is a dead letter whose fields are read by their names on the wire, without redeliver's prefix.
func letter(load history.Load, value []byte, field func(string) string) history.Line {
	var b body
	_ = json.Unmarshal(value, &b) // without an id nobody wrote it
	attempts, _ := strconv.Atoi(field("attempt"))
	return history.Line{
		Kind: history.Dead, Load: load.Name, ID: b.ID, Name: field("id"), Attempt: attempts, Reason: field("reason"),
		Sum: crc32.ChecksumIEEE(value),
	}
}

// unsettled is how far the group's commits are behind the ends of the topic and all on which messages wait.
func (k *kafkaStage) unsettled(ctx context.Context, load history.Load) (int64, string, error) {
	all, err := k.admin.ListTopics(ctx)
	if err != nil {
		return 0, "", err
	}
	var topics []string
	for _, name := range all.Names() {
		if name == load.Name || strings.HasPrefix(name, k.own(load)+".retry") {
			topics = append(topics, name)
		}
	}
	ends, err1 := k.admin.ListEndOffsets(ctx, topics...)
	starts, err2 := k.admin.ListStartOffsets(ctx, topics...)
	committed, err3 := k.admin.FetchOffsets(ctx, group(load))
	if err := cmp.Or(err1, err2, err3); err != nil {
		return 0, "", err
	}
	if err := cmp.Or(ends.Error(), starts.Error(), committed.Error()); err != nil {
		return 0, "", err
	}
	var lag int64
	var detail strings.Builder
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(-1)
		if c, ok := committed.Lookup(end.Topic, end.Partition); ok {
			at = c.At
		}
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			at = max(at, start.Offset)
		}
		if at != end.Offset {
			lag += max(1, end.Offset-at) // a commit beyond the end is wrong, too
			fmt.Fprintf(&detail, " %s[%d] %d of %d", strings.TrimPrefix(end.Topic, load.Name), end.Partition, at, end.Offset)
		}
	})
	return lag, detail.String(), nil
}

// lanes are what can happen to the network and to the nodes.
func (k *kafkaStage) lanes() []lane {
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
		k.liars[s.target].lying.Store(true)
		return func(context.Context) error { k.liars[s.target].lying.Store(false); return nil }, nil
	}})
	return []lane{network, {"node", []kind{
		{"node killed", nodes, k.kill},
		{"node frozen", nodes, func(_ context.Context, s step) (func(context.Context) error, error) {
			n := k.cluster.Nodes()[s.target]
			return func(context.Context) error { return n.Thaw() }, n.Freeze()
		}},
		{"disk full", nodes, k.fill},
		{"leader killed", 1, func(ctx context.Context, s step) (func(context.Context) error, error) {
			s.target = k.leader(ctx, s.size)
			return k.kill(ctx, s)
		}},
		{"leaders moved", 1, func(ctx context.Context, _ step) (func(context.Context) error, error) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, _ = k.admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil) // another fault may be in its way
			return nil, nil
		}},
	}, nodeRest}}
}

func (k *kafkaStage) kill(_ context.Context, s step) (func(context.Context) error, error) {
	n := k.cluster.Nodes()[s.target]
	return n.Start, n.Kill()
}

// fill lets none of a node's files grow, and the node, with its only disk gone, shuts itself down.
func (k *kafkaStage) fill(_ context.Context, s step) (func(context.Context) error, error) {
	n := k.cluster.Nodes()[s.target]
	return func(ctx context.Context) error {
		for n.Ended() == nil {
			if !pause(ctx, 50*time.Millisecond) {
				return fmt.Errorf("%s lives on a disk that is full: %w", n, context.Cause(ctx))
			}
		}
		return n.Start(ctx)
	}, n.LimitFiles(16 << 10)
}

// leader is the node that leads one of the first load's partitions, counted from 0. When nobody answers it is any.
func (k *kafkaStage) leader(ctx context.Context, size int) int {
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
func connectKafka(ctx context.Context, cfg consumerConfig, sink redeliver.Sink) (message.Subscriber, func(context.Context) error, error) {
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = kafkaSession, kafkaSession/8
	sc.Metadata.RefreshFrequency = 10 * time.Second
	if cfg.Patience > 0 {
		sc.Net.DialTimeout, sc.Net.ReadTimeout, sc.Net.WriteTimeout = cfg.Patience, cfg.Patience, cfg.Patience
	}
	client, err := kafka.Open(ctx, kafka.Config{
		Brokers: cfg.Addrs, Group: cfg.Group, Policy: cfg.policy(), Sarama: sc, Sink: sink,
		MaxInFlight: 20, DrainTimeout: 2 * time.Second, SendTimeout: cfg.Patience,
	})
	if err != nil {
		return nil, nil, err
	}
	return client.Subscriber(), client.Close, nil
}
