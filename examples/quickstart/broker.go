package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// inProcess is a Kafka in this process. It syncs its data to a directory and so survives a kill -9 of the process. A
// Kafka in another process would not even notice that.
type inProcess struct {
	cluster *kfake.Cluster
	dir     string
	address string // the file with its address
}

// startKafka starts a Kafka on the data of the previous one or, if fresh is set, without data.
func startKafka(fresh bool) (*inProcess, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir() // there is no home directory
	}
	k := &inProcess{dir: filepath.Join(base, "redeliver", "quickstart")}
	k.address = filepath.Join(k.dir, "address")
	if addr := k.running(); addr != "" {
		return nil, fmt.Errorf("another quickstart is running on %s, with its Kafka at %s: wait for its end, or end it", k.dir, addr)
	}
	if fresh {
		if err := os.RemoveAll(k.dir); err != nil {
			return nil, fmt.Errorf("deleting the data of the last run: %w", err)
		}
	}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the directory for the Kafka of this process: %w", err)
	}
	k.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1), kfake.DataDir(filepath.Join(k.dir, "kafka")), kfake.SyncWrites(),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)
	if err != nil {
		return nil, fmt.Errorf("starting a Kafka in this process on %s: %w; --fresh deletes its data", k.dir, err)
	}
	if err := os.WriteFile(k.address, []byte(k.brokers()[0]), 0o644); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

func (k *inProcess) brokers() []string { return k.cluster.ListenAddrs() }

func (k *inProcess) close() {
	k.cluster.Close()
	_ = os.Remove(k.address) // the address is only valid if something answers there
}

// running returns the address if another process runs its Kafka on the same directory. The file remains after a kill,
// but then nothing answers at the address.
func (k *inProcess) running() (addr string) {
	text, err := os.ReadFile(k.address)
	if err != nil {
		return ""
	}
	addr = strings.TrimSpace(string(text))
	cfg := sarama.NewConfig()
	cfg.Metadata.Retry.Max = 0
	client, err := sarama.NewClient([]string{addr}, cfg)
	if err != nil {
		return ""
	}
	_ = client.Close()
	return addr
}

// makeTopics creates the topics of a shop and a bank without redeliver.
func makeTopics(admin sarama.ClusterAdmin) error {
	for _, name := range []string{topic, ledgerTopic} {
		err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: -1}, false)
		if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			return fmt.Errorf("creating topic %s: %w", name, err)
		}
	}
	return nil
}
