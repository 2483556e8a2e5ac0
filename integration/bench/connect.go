package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// broker has the functions of a broker that the rows need, besides the code under test. One goroutine calls them.
type broker interface {
	// version returns its name and version: "Kafka 4.3".
	version(ctx context.Context) string
	// addresses returns the addresses for a side.
	addresses() []string
	// fresh returns names that nobody has used yet.
	fresh(ctx context.Context, row string) (names, error)
	// preload writes n messages and returns when all are confirmed.
	preload(ctx context.Context, topic string, n int) (written, error)
	// steady writes rate messages a second for a duration, a few every 5 ms.
	steady(ctx context.Context, topic string, rate int, d time.Duration) (written, error)
	// unsettled returns how many messages of a subscription the broker would deliver again, after the process has
	// ended.
	unsettled(ctx context.Context, s spec) (int64, error)
	// dead reads the DLQ of a subscription.
	dead(ctx context.Context, s spec) (*contents, error)
	// drop deletes the topics or queues of a run.
	drop(ctx context.Context, n names) error
	close()
}

// system is the broker on which a row runs.
type system string

const (
	onNone   system = ""
	onKafka  system = "kafka"
	onRabbit system = "rabbitmq"
	onSQS    system = "sqs"
	onRocket system = "rocketmq" // for one side of a row whose other side is on Kafka
)

// The variables in which withbrokers passes the brokers' addresses.
var environment = map[system]string{onKafka: "REDELIVER_TEST_KAFKA", onRabbit: "REDELIVER_TEST_RABBITMQ", onSQS: "REDELIVER_TEST_SQS"}

// connect opens the brokers that the selected rows run on.
func connect(ctx context.Context, o options) (opened map[system]broker, err error) {
	opened = make(map[system]broker)
	defer func() {
		if err != nil {
			for _, b := range opened {
				b.close()
			}
		}
	}()
	for _, r := range rows {
		if _, ok := opened[r.system]; ok || r.system == onNone || !o.selected(r.name) {
			continue
		}
		name := environment[r.system]
		address := os.Getenv(name)
		if address == "" {
			return opened, fmt.Errorf("%w: row %s needs %s: run it as bin/withbrokers --kafka --rabbitmq --sqs -- bin/bench, or make bench", errUsage, r.name, name)
		}
		switch r.system {
		case onRabbit:
			b, err := dialRabbit(address)
			if err != nil {
				return opened, err
			}
			opened[r.system] = b
		case onSQS:
			b, err := dialSQS(ctx, address)
			if err != nil {
				return opened, err
			}
			opened[r.system] = b
		default:
			b, err := dial(ctx, strings.Split(address, ","))
			if err != nil {
				return opened, err
			}
			opened[r.system] = b
		}
	}
	return opened, nil
}

// prepare lets a side make its own queues, before messages are written to them. On Kafka the topics already exist.
func (e *experiment) prepare(ctx context.Context, s spec) error {
	if s.System == onKafka {
		return nil
	}
	if r, ok := e.broker.(*rocket); ok {
		return r.prepare(ctx, s)
	}
	s.Job = provision
	p, err := spawn(s)
	if err != nil {
		return err
	}
	_, err = p.await(ctx, time.Minute)
	return err
}
