package brokers

import (
	"context"
	"fmt"
	"strings"

	"github.com/redeliver/redeliver/integration/compose"
)

func composeKafka(ctx context.Context, o KafkaOptions, command []string) (*Broker, error) {
	ports, err := freePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for k, v := range o.Properties {
		env[imageVariable(k)] = strings.ReplaceAll(v, "$", "$$") // compose would fill in a variable
	}
	c, err := newComposed(command, "kafka", compose.Kafka, map[string]any{"environment": env}, nil,
		fmt.Sprintf("REDELIVER_KAFKA_PORT=%d", ports[0]),
		"REDELIVER_KAFKA_HEAP="+o.Heap)
	if err != nil {
		return nil, err
	}
	return open(ctx, &Broker{
		name:     "Apache Kafka " + kafkaVersion + " (docker)",
		addrs:    []string{fmt.Sprintf("127.0.0.1:%d", ports[0])},
		sys:      c,
		ready:    kafkaIsWhole,
		patience: o.StartTimeout,
		logf:     o.Logf,
	})
}
