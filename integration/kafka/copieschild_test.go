package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// A consumer in a process of its own whose handler always fails: this binary, started
// again with copyEnv set.
const copyEnv = "REDELIVER_TEST_KAFKA_COPIES"

// copyConfig is what the parent tells its children, by that variable.
type copyConfig struct {
	Addrs        []string `json:"addrs"`
	Topic        string   `json:"topic"`
	Group        string   `json:"group"`
	Instance     string   `json:"instance"`
	Transactions bool     `json:"transactions"`
}

// Two levels, so that a copy on the first makes one on the second and in the DLQ.
var copyLevels = []time.Duration{200 * time.Millisecond, 500 * time.Millisecond}

func copyChild(ctx context.Context, cfg copyConfig) error {
	declined := errors.New("card declined")
	return consume(ctx, cfg.Addrs, 3*time.Second, kafka.Config{
		Group: cfg.Group, InstanceID: cfg.Instance, MaxInFlight: 200, Transactions: cfg.Transactions, DrainTimeout: 5 * time.Second,
		Policy: redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(copyLevels...), Levels: copyLevels},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.SubscriptionChanged:
				fmt.Println(time.Now().Format(time.StampMilli), e.Change, e.Detail, e.Err)
			case redeliver.PublishFailed:
				fmt.Println(time.Now().Format(time.StampMilli), "not written:", e.Where, e.Err)
			default:
			}
		}),
	}, cfg.Topic, func(context.Context, *sarama.ConsumerMessage) error { return declined })
}
