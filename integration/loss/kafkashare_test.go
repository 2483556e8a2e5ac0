//go:build prove

package loss

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
)

// TestLossKafkaShare is TestLossKafka on a share group. The brokers' sessions are short, as the suite's are on Kafka.
func TestLossKafkaShare(t *testing.T) {
	t.Parallel()
	p := drawPlan(t, full())
	p.variant, p.suspects = cooperative, true // the group of the levels; copies of counted messages have a due time
	b := brokers.OwnKafka(t, brokers.KafkaOptions{Properties: map[string]string{
		"group.share.session.timeout.ms": strconv.FormatInt(kafkaSession.Milliseconds(), 10), "group.share.min.session.timeout.ms": "1000",
		"group.share.record.lock.duration.ms": "6000",
	}})
	sys := shareSystem{newKafka(t, b.Addrs(), b, "loss", 10)}
	wantNoLoss(t, "loss: Kafka share group", sys, p, explained)
}

// shareSystem is a kafkaSystem whose topic is read by a share group.
type shareSystem struct{ *kafkaSystem }

func (k shareSystem) consumer() consumerConfig {
	cfg := k.kafkaSystem.consumer()
	cfg.Broker = "kafkashare"
	return cfg
}

func (k shareSystem) unsettled(ctx context.Context) (int64, string, error) {
	n, detail, err := brokerstate.Kafka(ctx, k.admin, k.group()+"-retry", k.base()+".retry", k.base())
	if err != nil {
		return 0, "", err
	}
	groups, err := k.admin.DescribeShareGroupOffsets(ctx, k.group())
	if err != nil {
		return 0, "", err
	}
	for topic, partitions := range groups[k.group()].Offsets {
		for p, o := range partitions {
			if o.Lag != 0 { // -1: nothing was read yet
				n += max(1, o.Lag)
				detail += fmt.Sprintf(" %s[%d] lag %d", topic, p, o.Lag)
			}
		}
	}
	return n, detail, nil
}
