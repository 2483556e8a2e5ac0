package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// place is a topic of four partitions and a group that no other test has.
type place struct {
	addrs        []string
	topic, group string
}

// ours is the name of a topic of redeliver's: "retry.10s", "dlq".
func (p place) ours(suffix string) string { return p.topic + "." + p.group + "." + suffix }

// onKafka gives a place on a Kafka inside the test, or, where REDELIVER_TEST_KAFKA
// names one, on a real one. make test runs the tests that begin with TestOnKafka
// both ways: those whose subject is what the broker does as much as what we do.
func onKafka(t *testing.T) place {
	t.Helper()
	name := strings.ToLower(rand.Text()[:8])
	p := place{topic: "orders-" + name, group: "billing-" + name}
	given := os.Getenv("REDELIVER_TEST_KAFKA")
	if given == "" {
		p.addrs = fake(t, p.topic).ListenAddrs()
		return p
	}
	t.Logf("report: on the Kafka at %s", given)
	p.addrs = strings.Split(given, ",")
	adm := kadm.NewClient(independent(t, p.addrs))
	forever := "-1" // some records are years old
	if _, err := adm.CreateTopic(t.Context(), 4, 1, map[string]*string{"retention.ms": &forever}, p.topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker knows the new topic", func() bool {
		there, err := adm.ListTopics(t.Context(), p.topic)
		return err == nil && there.Has(p.topic)
	})
	t.Cleanup(func() { // after the clients are closed
		ctx := context.Background() // the test's has ended
		there, err := adm.ListTopics(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, topic := range there.Names() {
			if strings.HasPrefix(topic, p.topic) {
				if _, err := adm.DeleteTopic(ctx, topic); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) { // the broker lists for a while what is gone
					t.Error(err)
				}
			}
		}
	})
	return p
}
