package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// request has the options of the command line.
type request struct {
	kafka        bool
	kafkaOptions brokers.KafkaOptions

	rabbits       []brokers.RabbitMQVersion
	rabbitOptions brokers.RabbitMQOptions

	sqs        bool
	sqsOptions brokers.SQSOptions
	moto       bool
	redis      bool

	rocketMQ        bool
	rocketMQOptions brokers.RocketMQOptions

	command []string
}

// neverFenced is longer than any pause of a busy machine. Shorter sessions are for tests that kill Kafka and wait for
// it, which nobody does with this one. A node that missed its own heartbeats took all partitions from itself, gave them
// back, and was even busier than before.
const neverFenced = time.Minute

func parse(args []string, stderr io.Writer) (request, error) {
	r := request{
		kafkaOptions:  brokers.KafkaOptions{Properties: map[string]string{}, Session: neverFenced},
		rabbitOptions: brokers.RabbitMQOptions{Config: map[string]string{}},
		sqsOptions:    brokers.SQSOptions{Config: map[string]string{}},

		rocketMQOptions: brokers.RocketMQOptions{Properties: map[string]string{}},
	}
	flags := flag.NewFlagSet("withbrokers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&r.kafka, "kafka", false, "start a Kafka and put its address into "+brokers.EnvKafka)
	flags.BoolVar(&r.kafkaOptions.Brief, "brief", false, "start JVMs that are up soon and slower in the end, and keep RabbitMQ's data in memory, for brokers of minutes; not for a benchmark")
	flags.StringVar(&r.kafkaOptions.Heap, "kafka-heap", "", "the -Xmx of Kafka's JVM (default 1g)")
	flags.Func("kafka-set", "a server property for Kafka, `name=value`; may be repeated", into(r.kafkaOptions.Properties))
	rabbit3 := flags.Bool("rabbitmq", false, "start a RabbitMQ "+string(brokers.RabbitMQ3)+" and put its URL into "+brokers.EnvRabbitMQ)
	rabbit4 := flags.Bool("rabbitmq4", false, "start a RabbitMQ "+string(brokers.RabbitMQ4)+" and put its URL into "+brokers.EnvRabbitMQ4)
	rabbit43 := flags.Bool("rabbitmq43", false, "start a RabbitMQ "+string(brokers.RabbitMQ43)+" and put its URL into "+brokers.EnvRabbitMQ43)
	flags.Func("rabbitmq-set", "a line of rabbitmq.conf for each RabbitMQ, `name=value`; may be repeated", into(r.rabbitOptions.Config))
	flags.BoolVar(&r.sqs, "sqs", false, "start an ElasticMQ and put its endpoint into "+brokers.EnvSQS)
	flags.StringVar(&r.sqsOptions.Heap, "sqs-heap", "", "the -Xmx of ElasticMQ's JVM (default 256m)")
	flags.Func("sqs-set", "a setting of elasticmq.conf, `path=value`; may be repeated", into(r.sqsOptions.Config))
	flags.BoolVar(&r.moto, "moto", false, "start a moto server for SQS and put its endpoint into "+brokers.EnvMoto)
	flags.BoolVar(&r.redis, "redis", false, "start a Redis and put its address into "+brokers.EnvRedis)
	flags.BoolVar(&r.rocketMQ, "rocketmq", false, "start a RocketMQ and put the address of its name server into "+brokers.EnvRocketMQ)
	flags.StringVar(&r.rocketMQOptions.Heap, "rocketmq-heap", "", "the -Xmx of the JVM of RocketMQ's broker (default 1g)")
	flags.Func("rocketmq-set", "a property for RocketMQ's broker, `name=value`; may be repeated", into(r.rocketMQOptions.Properties))
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: withbrokers [--kafka] [--rabbitmq] [--rabbitmq4] [--rabbitmq43] [--sqs] [--moto] [--redis] [--rocketmq] [SETTINGS] -- COMMAND ARGS...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return r, err
	}
	r.sqsOptions.Brief, r.rabbitOptions.Brief = r.kafkaOptions.Brief, r.kafkaOptions.Brief
	if *rabbit3 {
		r.rabbits = append(r.rabbits, brokers.RabbitMQ3)
	}
	if *rabbit4 {
		r.rabbits = append(r.rabbits, brokers.RabbitMQ4)
	}
	if *rabbit43 {
		r.rabbits = append(r.rabbits, brokers.RabbitMQ43)
	}
	r.command = flags.Args()
	switch {
	case !r.kafka && len(r.rabbits) == 0 && !r.sqs && !r.moto && !r.redis && !r.rocketMQ:
		return r, errors.New("no broker is asked for; say --kafka, --rabbitmq, --rabbitmq4, --rabbitmq43, --sqs, --moto, --redis or --rocketmq")
	case len(r.command) == 0:
		return r, errors.New("no command is given; put it behind --")
	}
	return r, nil
}

// into returns a function that parses a flag's name=value into settings.
func into(settings map[string]string) func(string) error {
	return func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("want name=value")
		}
		settings[name] = value
		return nil
	}
}
