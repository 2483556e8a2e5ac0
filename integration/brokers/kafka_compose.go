package brokers

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/redeliver/redeliver/integration/compose"
)

func composeKafka(ctx context.Context, o KafkaOptions, command []string) (*Broker, error) {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	env, over := map[string]string{}, map[string]any{}
	given := o.Properties
	if len(o.Users) > 0 {
		given = map[string]string{
			"listeners":            fmt.Sprintf("PLAINTEXT://0.0.0.0:%d,CONTROLLER://127.0.0.1:9093", ports[0]),
			"advertised.listeners": fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", ports[0]),
		}
		kafkaUsers(given, o.Users, "0.0.0.0", ports[1])
		maps.Copy(given, o.Properties)
		over["ports"] = []string{fmt.Sprintf("127.0.0.1:%d:%d", ports[1], ports[1])} // in addition to those of the file
	}
	for k, v := range given {
		env[imageVariable(k)] = strings.ReplaceAll(v, "$", "$$") // compose would expand a variable
	}
	over["environment"] = env
	c, err := newComposed(command, "kafka", compose.Kafka, over, nil,
		fmt.Sprintf("REDELIVER_KAFKA_PORT=%d", ports[0]),
		"REDELIVER_KAFKA_HEAP="+o.Heap)
	if err != nil {
		return nil, err
	}
	return open(ctx, &Broker{
		name:      "Apache Kafka " + kafkaVersion + " (docker)",
		addrs:     []string{fmt.Sprintf("127.0.0.1:%d", ports[0])},
		userAddrs: o.userAddrs(ports[1]),
		sys:       c,
		ready:     kafkaIsWhole,
		maxWait:   o.StartTimeout,
		logf:      o.Logf,
	})
}
