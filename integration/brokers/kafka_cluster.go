package brokers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The listeners of a node of a [KafkaCluster].
const (
	ClusterClients    = "PLAINTEXT"  // for clients
	ClusterReplicas   = "REPLICAS"   // for replication by other nodes
	ClusterController = "CONTROLLER" // for the quorum of the controllers
)

// KafkaClusterOptions configures a cluster.
type KafkaClusterOptions struct {
	// Heap is the -Xmx of each node. Default "256m".
	Heap string
	// Properties are additions to server.properties of every node, or replace its defaults. Default none.
	Properties map[string]string
	// Via is called once for every listener before anything starts. It returns the address that other programs use,
	// such as that of a proxy. Default: the listener's own address.
	Via func(node int, listener, address string) (string, error)
	// StartTimeout bounds every wait for readiness. Default 8 min.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: tb.Logf.
	Logf func(format string, args ...any)
}

// KafkaCluster is a Kafka of several nodes. Each node is a broker and a controller, in a process of its own.
type KafkaCluster struct {
	nodes []*Broker
	addrs []string
}

// Nodes returns the nodes, beginning with number 1. Their Addrs are the addresses on which they listen, without a
// proxy.
func (c *KafkaCluster) Nodes() []*Broker { return slices.Clone(c.nodes) }

// Addrs returns the addresses for a client: those that the nodes advertise.
func (c *KafkaCluster) Addrs() []string { return slices.Clone(c.addrs) }

// OwnKafkaCluster starts that many nodes that only this test uses, and may kill, suspend and restart. Topics have as
// many replicas, all but one of which must have a record before it is confirmed. The nodes are stopped at the end of
// the test. If the test has failed, their logs are kept. They always run natively, because a node that is frozen, or
// whose disk is full, must be a child process.
func OwnKafkaCluster(tb testing.TB, nodes int, o KafkaClusterOptions) *KafkaCluster {
	tb.Helper()
	o.Heap = cmp.Or(o.Heap, "256m")
	complete(&o.StartTimeout, &o.Logf, tb.Logf)
	if o.Via == nil {
		o.Via = func(_ int, _, address string) (string, error) { return address, nil }
	}
	began := time.Now()
	c, err := startCluster(context.Background(), nodes, o) // not the test's context, as with Kafka
	if err != nil {
		tb.Fatal(fmt.Errorf("starting a kafka of %d nodes for the tests: %w", nodes, err))
	}
	for _, n := range c.nodes {
		stopAtEnd(tb, n)
	}
	tb.Cleanup(func() {
		// Kill all nodes at once instead of stopping them in order: the last one would wait for a quorum that is gone.
		for _, n := range c.nodes {
			_ = n.Kill() // it may have ended already; Stop reports that
		}
	})
	o.Logf("Apache Kafka %s of %d nodes at %v, up in %.1fs", kafkaVersion, nodes, c.addrs, time.Since(began).Seconds())
	return c
}

func startCluster(ctx context.Context, n int, o KafkaClusterOptions) (*KafkaCluster, error) {
	java, lib, err := javaOf("kafka", EnvKafka, kafkaPOM)
	if err != nil {
		return nil, err
	}
	flags, err := kafkaClasses(ctx, java, kafkaVersion, o.Logf)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 3*n)
	if err != nil {
		return nil, err
	}
	c := &KafkaCluster{nodes: make([]*Broker, n)}
	all := make([]clusterNode, n)
	var voters []string
	for i := range all {
		all[i] = clusterNode{id: i + 1, java: java, lib: lib, flags: flags, at: make(map[string]string), via: make(map[string]string)}
		for j, name := range []string{ClusterClients, ClusterReplicas, ClusterController} {
			at := fmt.Sprintf("127.0.0.1:%d", ports[3*i+j])
			via, err := o.Via(i+1, name, at)
			if err != nil {
				return nil, err
			}
			all[i].at[name], all[i].via[name] = at, via
		}
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, all[i].via[ClusterController]))
		c.addrs = append(c.addrs, all[i].via[ClusterClients])
	}
	cluster := kafkaUUID()
	for i := range all {
		if err := all[i].prepare(ctx, o, voters, cluster); err != nil {
			for _, n := range all[:i] {
				err = errors.Join(err, n.forget())
			}
			return nil, err
		}
	}
	errs := make([]error, n)
	var starting sync.WaitGroup
	for i := range all {
		// Start all at once, because a node answers only when the quorum has a majority.
		starting.Go(func() { c.nodes[i], errs[i] = all[i].start(ctx, o) })
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		for _, b := range c.nodes {
			if b != nil {
				err = errors.Join(err, b.Stop())
			}
		}
		return nil, err
	}
	return c, nil
}

// clusterNode is a node before it starts. at and via are indexed by listener.
type clusterNode struct {
	id        int
	java, lib string
	flags     []string // of the JVM
	at, via   map[string]string
	work      *workDir
}

// prepare writes the files that the node needs to start.
func (n *clusterNode) prepare(ctx context.Context, o KafkaClusterOptions, voters []string, cluster string) error {
	work, err := newWorkDir("kafka")
	if err != nil {
		return err
	}
	n.work = work
	if err := formatKafka(ctx, n.java, n.lib, work, n.settings(o, work.path("data"), voters), cluster, kafkaVersion, o.Logf); err != nil {
		return errors.Join(err, n.forget())
	}
	return nil
}

func (n *clusterNode) forget() error {
	_, err := n.work.remove(false)
	return err
}

func (n *clusterNode) start(ctx context.Context, o KafkaClusterOptions) (*Broker, error) {
	k := &child{work: n.work, command: kafkaCommand(n.java, n.lib, n.work, o.Heap, n.flags...)}
	return open(ctx, &Broker{
		name:    fmt.Sprintf("node %d of Apache Kafka %s (native)", n.id, kafkaVersion),
		addrs:   []string{n.at[ClusterClients]},
		sys:     k,
		ready:   n.registered,
		maxWait: o.StartTimeout,
		logf:    o.Logf,
	})
}

func (n *clusterNode) settings(o KafkaClusterOptions, dataDir string, voters []string) map[string]string {
	list := func(at map[string]string, names ...string) string {
		var parts []string
		for _, name := range names {
			parts = append(parts, name+"://"+at[name])
		}
		return strings.Join(parts, ",")
	}
	p := kafkaSettings()
	replicas, least := strconv.Itoa(len(voters)), strconv.Itoa(max(1, len(voters)-1))
	for _, topic := range []string{"offsets.topic", "transaction.state.log", "share.coordinator.state.topic"} {
		p[topic+".replication.factor"] = replicas
	}
	maps.Copy(p, map[string]string{
		"transaction.state.log.min.isr":         least,
		"share.coordinator.state.topic.min.isr": least,
		"default.replication.factor":            replicas,
		"min.insync.replicas":                   least,
		"offsets.topic.num.partitions":          "8",
		"process.roles":                         "broker,controller",
		"node.id":                               strconv.Itoa(n.id),
		"controller.quorum.voters":              strings.Join(voters, ","),
		"listeners":                             list(n.at, ClusterClients, ClusterReplicas, ClusterController),
		"advertised.listeners":                  list(n.via, ClusterClients, ClusterReplicas),
		"listener.security.protocol.map":        "PLAINTEXT:PLAINTEXT,REPLICAS:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":             ClusterController,
		"inter.broker.listener.name":            ClusterReplicas,
		"log.dirs":                              dataDir,
		// Notice a slow replica within seconds, as everything else here.
		"replica.lag.time.max.ms":         "4000",
		"replica.socket.timeout.ms":       "4000",
		"controller.socket.timeout.ms":    "4000",
		"num.network.threads":             "2",
		"num.io.threads":                  "4",
		"log.cleaner.dedupe.buffer.size":  "16777216",
		"unclean.leader.election.enable":  "false",
		"auto.leader.rebalance.enable":    "false", // only the test moves leaders
		"controlled.shutdown.max.retries": "1",
	})
	maps.Copy(p, o.Properties)
	return p
}

// registered asks the node directly, without a proxy, whether it belongs to the cluster.
func (n *clusterNode) registered(ctx context.Context, addrs []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RequestRetries(0))
	if err != nil {
		return fmt.Errorf("asking node %d at %v: %w", n.id, addrs, err)
	}
	defer client.Close()
	m, err := kadm.NewClient(client).BrokerMetadata(ctx)
	if err != nil {
		return fmt.Errorf("asking node %d at %v for its metadata: %w", n.id, addrs, err)
	}
	if !slices.Contains(m.Brokers.NodeIDs(), int32(n.id)) {
		return fmt.Errorf("node %d answers, and has not joined the cluster yet", n.id)
	}
	return nil
}

// briefJVM are the flags of a JVM that starts fast and stays small, at the cost of speed later. It lives for minutes,
// and there may be several. With all its compilers a JVM spends its first minutes on itself.
var briefJVM = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

// kafkaCommand returns a function that returns a new command for Kafka in a work directory.
func kafkaCommand(java, lib string, work *workDir, heap string, flags ...string) func() *exec.Cmd {
	args := append([]string{"-Xmx" + heap}, flags...)
	args = append(args, "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(lib, "*"), "kafka.Kafka", work.path("server.properties"))
	return func() *exec.Cmd {
		return exec.Command(java, args...) //nolint:noctx // It outlives this call; open ties it to a context.
	}
}
