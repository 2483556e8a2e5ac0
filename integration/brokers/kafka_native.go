package brokers

import (
	"bytes"
	"context"
	_ "embed" // for the pom below
	"errors"
	"fmt"
)

//go:embed kafka/pom.xml
var kafkaPOM []byte

// kafkaJars returns the recipe of the directory with the jars of a version, and its name in the cache.
func kafkaJars(version string) (name string, pom []byte) {
	if version == kafkaVersion {
		return "kafka", kafkaPOM
	}
	return "kafka-" + version, bytes.ReplaceAll(kafkaPOM, []byte(kafkaVersion), []byte(version))
}

func nativeKafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	return onFreePorts("kafka", inUse, o.Logf, func() (*Broker, error) { return nativeKafkaOnce(ctx, o) })
}

func nativeKafkaOnce(ctx context.Context, o KafkaOptions) (*Broker, error) {
	name, pom := kafkaJars(o.Version)
	java, lib, err := javaOf(name, EnvKafka, pom)
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
	if err := formatKafka(ctx, java, lib, work, settings, kafkaUUID(), o.Version, o.Logf); err != nil {
		_, removed := k.remove(false)
		return nil, errors.Join(err, removed)
	}
	return open(ctx, &Broker{
		name:      "Apache Kafka " + o.Version + " (native)",
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
		return kafkaClasses(ctx, java, o.Version, o.Logf)
	default: // as in Kafka's own start script
		return []string{"-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}, nil
	}
}
