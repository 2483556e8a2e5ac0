package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// By default sarama asks for all topics of the cluster again and again. With thousands of topics that would be most of
// the brokers' work.
func TestMembersAndProducersAskOnlyForTheirTopics(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders", "stock")
	var all atomic.Int32
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		topics := req.(*kmsg.MetadataRequest).Topics
		if topics == nil {
			all.Add(1)
		}
		for _, topic := range topics {
			if topic.Topic != nil && *topic.Topic == "stock" {
				t.Error("a client asks for a topic that it does not use")
			}
		}
		return nil, nil, false
	})
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Metadata.RefreshFrequency = time.Hour
	c, ev := openClient(t, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Policy: quick(1), Sarama: cfg})
	route(t, c, "orders", failFirst(1))
	recs, ids := orders("orders", 3)
	write(t, cluster.ListenAddrs(), recs...)
	ev.awaitEnds(t, ids...)
	if n := all.Load(); n != 3 {
		t.Errorf("all topics were asked for %d times, want 3: by the client for administration, and for old levels before and after there are new ones", n)
	}
}
