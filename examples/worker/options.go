package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/backofftext"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// options are the command line.
type options struct {
	broker       brokerurl.URL
	topic, group string
	policy       redeliver.Policy
	maxInFlight  int
	instanceID   string
	createTopic  bool
	plan         bool
	work         time.Duration
	answer       func(*message.Message) error
}

// usageError is an error in the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var broker, backoff, fail string
	var retries int
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.StringVar(&broker, "broker", "", "`URL` of the broker: kafka://host:9092[,host2:9092], kafka+tls://user:password@host:9093?sasl=scram-sha-512, amqp://user:password@host:5672/vhost, amqps://, sqs://region, sqs+http://host:9324 (default $"+brokerurl.Env+")")
	flags.StringVar(&o.topic, "topic", "", "the `topic` to consume; on RabbitMQ and SQS the queue, made when it does not exist (required)")
	flags.StringVar(&o.group, "group", "", "the consumer `group` (required on Kafka, ignored on RabbitMQ and SQS, where all readers of a queue share it)")
	flags.IntVar(&retries, "retries", redeliver.DefaultMaxRetries, "retries after the first attempt, 0 for none; with --backoff rocketmq the default is its own 16")
	flags.StringVar(&backoff, "backoff", "exponential:1s,60s", "the waits before the retries: "+backofftext.Usage)
	flags.DurationVar(&o.policy.Timeout, "timeout", redeliver.DefaultTimeout, "the longest that one attempt may take")
	flags.IntVar(&o.maxInFlight, "max-in-flight", 100, "how many messages are handled at once")
	flags.StringVar(&fail, "fail", "never", "which attempts fail, a `rule`: never, always, permanent, 'attempt<N', header:NAME (the header holds the rule), hang, panic, exit")
	flags.BoolVar(&o.policy.Outage.Off, "no-outage", false, "dead-letter messages although nearly all of them fail; otherwise they wait, as in an outage")
	flags.DurationVar(&o.work, "work", 0, "how long an attempt works before it answers")
	flags.StringVar(&o.instanceID, "instance-id", "", "static membership: an `id` that no other process of the group has (Kafka only)")
	flags.BoolVar(&o.createTopic, "create-topic", false, "create the topic, with the broker's defaults, when it does not exist (on RabbitMQ and SQS always)")
	flags.BoolVar(&o.plan, "plan", false, "say how the retries would wait and what would be created, and end; nothing is created")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "usage: worker --broker URL --topic T [--group G] [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })

	var errs []error
	note := func(flag string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %w", flag, err))
		}
	}
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("%q is not a flag", redeliver.Redact(flags.Arg(0)))) // it may be a URL
	}
	var err error
	o.broker, err = brokerurl.Parse(cmp.Or(broker, os.Getenv(brokerurl.Env)), brokerurl.Kafka, brokerurl.RabbitMQ, brokerurl.SQS)
	note("--broker:", err)
	o.broker.MaxBatch = 128 << 20 // a script may try large messages
	note("--topic", required(o.topic))
	if o.broker.Broker == brokerurl.Kafka {
		note("--group", required(o.group))
	}
	o.policy.Backoff, err = backofftext.Parse(backoff)
	note("--backoff", err)
	switch {
	case retries < 0:
		note("--retries", fmt.Errorf("is %d: must be 0 or more", retries))
	case retries == 0:
		o.policy.MaxRetries = redeliver.NoRetries
	case given["retries"]:
		o.policy.MaxRetries = retries // otherwise the default of the backoff
	}
	note("--timeout", positive(o.policy.Timeout))
	if o.maxInFlight < 1 {
		note("--max-in-flight", fmt.Errorf("is %d: must be 1 or more", o.maxInFlight))
	}
	r, err := parseRule(fail)
	note("--fail", err)
	o.answer = answer(r, o.work)
	if len(errs) == 0 && o.broker.Broker != brokerurl.Kafka {
		// Ignore the flag, because a script runs all brokers with one command line.
		name := map[brokerurl.Broker]string{brokerurl.RabbitMQ: "RabbitMQ", brokerurl.SQS: "SQS"}[o.broker.Broker]
		for _, flag := range []string{"group", "instance-id"} {
			if given[flag] {
				fmt.Fprintf(stderr, "worker: --%s is ignored: %s has no groups, all readers of queue %s share it\n", flag, name, o.topic)
			}
		}
	}
	return o, errors.Join(errs...)
}

func required(value string) error {
	if value == "" {
		return errors.New("is required")
	}
	return nil
}

func positive(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("is %s: must be more than 0", d)
	}
	return nil
}
