package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// Topic a.b with group c and topic a with group b_c make names that Kafka does not distinguish. The error names both
// topics and the remedy. The in-process Kafka accepts such names, so it is made to answer as a real one does.
func TestOnKafkaNamesThatCollideAreExplained(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	adm := kadm.NewClient(independent(t, p.addrs))
	existing := p.topic + ".b_c.retry.100ms"
	for _, topic := range []string{p.topic + ".b", existing} {
		kafkatest.MakeTopic(t, adm, 1, nil, topic)
	}
	if !p.real {
		p.cluster.ControlKey(int16(kmsg.CreateTopics), func(req kmsg.Request) (kmsg.Response, error, bool) {
			p.cluster.KeepControl()
			return refuseCreateTopics(req, kerr.InvalidTopicException), nil, true
		})
	}
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: "c", Policy: quick(1)})
	err := c.Subscriber().SubscribeInitialize(p.topic + ".b")
	if err == nil {
		t.Fatal("the subscription began")
	}
	for _, want := range []string{p.topic + ".b.c.retry.100ms", existing, "Config.Names"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s: %v", want, err)
		}
	}
}
