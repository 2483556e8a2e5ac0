package kafka_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver/internal/kafkatest"
)

// fixture has a topic of four partitions and a group that no other test uses.
type fixture struct {
	addrs        []string
	topic, group string
	real         bool           // a real broker
	cluster      *kfake.Cluster // the in-process one
}

// ours returns the name of a topic of redeliver's, such as "retry.10s" or "dlq".
func (p fixture) ours(suffix string) string { return p.topic + "." + p.group + "." + suffix }

// topics lists our existing topics, by their suffixes.
func (p fixture) topics(t *testing.T) (suffixes []string) {
	t.Helper()
	existing, err := kadm.NewClient(independent(t, p.addrs)).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range existing.Names() {
		if suffix, ok := strings.CutPrefix(name, p.ours("")); ok {
			suffixes = append(suffixes, suffix)
		}
	}
	return suffixes
}

// onKafka makes a fixture on an in-process Kafka or, if REDELIVER_TEST_KAFKA names one, on a real one. make test runs
// tests whose names begin with TestOnKafka both ways: they depend on the broker's behaviour as much as on ours.
func onKafka(t *testing.T) fixture {
	t.Helper()
	name := strings.ToLower(rand.Text()[:8])
	p := fixture{topic: "orders-" + name, group: "billing-" + name}
	given := os.Getenv("REDELIVER_TEST_KAFKA")
	if given == "" {
		p.cluster = fake(t, p.topic)
		p.addrs = p.cluster.ListenAddrs()
		return p
	}
	t.Logf("report: on the Kafka at %s", given)
	p.real = true
	p.addrs = strings.Split(given, ",")
	adm := kadm.NewClient(independent(t, p.addrs))
	forever := "-1" // some records are years old
	kafkatest.MakeTopic(t, adm, 4, map[string]*string{"retention.ms": &forever}, p.topic)
	t.Cleanup(func() { // after the clients are closed
		existing, err := adm.ListTopics(context.Background()) // the test's has ended
		if err != nil {
			t.Error(err)
		}
		for _, topic := range existing.Names() {
			if strings.HasPrefix(topic, p.topic) {
				kafkatest.DropTopic(t, adm, topic)
			}
		}
	})
	return p
}
