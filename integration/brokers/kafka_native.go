package brokers

import (
	"context"
	_ "embed" // for the pom below
	"errors"
	"fmt"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

func nativeKafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	return onFreePorts("kafka", inUse, o.Logf, func() (*Broker, error) { return nativeKafkaOnce(ctx, o) })
}

func nativeKafkaOnce(ctx context.Context, o KafkaOptions) (*Broker, error) {
	java, lib, err := javaOf("kafka", EnvKafka, kafkaPOM)
	if err != nil {
		return nil, err
	}
	flags, err := o.jvm(ctx, java)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(ctx, 3)
	if err != nil {
		return nil, err
	}
	work, err := newWorkDir("kafka")
	if err != nil {
		return nil, err
	}
	k := &child{work: work, command: kafkaCommand(java, lib, work, o.Heap, flags...)}
	settings := kafkaNative(o, work.path("data"), ports[0], ports[1], ports[2])
	if err := formatKafka(ctx, java, lib, work, settings, kafkaUUID(), o.Logf); err != nil {
		_, removed := k.remove(false)
		return nil, errors.Join(err, removed)
	}
	return open(ctx, &Broker{
		name:      "Apache Kafka " + kafkaVersion + " (native)",
		addrs:     []string{fmt.Sprintf("127.0.0.1:%d", ports[0])},
		userAddrs: o.userAddrs(ports[2]),
		sys:       k,
		ready:     kafkaIsWhole,
		maxWait:   o.StartTimeout,
		logf:      o.Logf,
	})
}

// jvm returns the flags of the JVM.
func (o KafkaOptions) jvm(ctx context.Context, java string) ([]string, error) {
	switch {
	case o.classesTo != "":
		return writesClasses(o.classesTo), nil
	case o.Brief:
		return kafkaClasses(ctx, java, o.Logf)
	default: // as in Kafka's own start script
		return []string{"-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}, nil
	}
}
