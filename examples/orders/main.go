// Command orders sends orders to a topic or queue at an interval. It is for trying redeliver by hand and in
// integration/compose. examples/worker and examples/sidecar-python handle the orders.
//
//	orders --broker kafka://localhost:9092 --topic shop
//	orders --broker amqp://guest:guest@localhost:5672/ --topic shop --every 100ms --count 1000
//	orders --broker sqs+http://localhost:9324 --topic shop
//
// The program creates the topic or queue if it does not exist. An order is JSON, {"number": 1, "card": "4111"}. Every
// seventh order has no card, so a handler can only refuse it. Numbers begin with 1 in each process.
//
// SIGTERM and SIGINT end the program with exit status 0. The status is 2 for wrong arguments and 1 for all other
// failures. A broker that does not answer is a failure: the program must then be started again.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// options are the command line.
type options struct {
	broker brokerurl.URL
	topic  string
	every  time.Duration
	count  int
}

func run(args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "orders: %v\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := send(ctx, o); err != nil {
		fmt.Fprintf(stderr, "orders: %s\n", redeliver.Redact(err.Error()))
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var broker string
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the caller prints the error, once
	flags.StringVar(&broker, "broker", "", "`URL` of the broker, as of redeliver (default $"+brokerurl.Env+")")
	flags.StringVar(&o.topic, "topic", "orders", "the `topic`, or on RabbitMQ and SQS the queue, that orders are sent to")
	flags.DurationVar(&o.every, "every", time.Second, "how long between two orders")
	flags.IntVar(&o.count, "count", 0, "how many orders, 0 for without end")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "usage: orders --broker URL [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return o, err
	}
	u, err := brokerurl.Parse(cmp.Or(broker, os.Getenv(brokerurl.Env)), brokerurl.Kafka, brokerurl.RabbitMQ, brokerurl.SQS)
	switch {
	case err != nil:
		return o, fmt.Errorf("--broker: %w", err)
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is not a flag", redeliver.Redact(flags.Arg(0)))
	case o.topic == "":
		return o, errors.New("--topic is empty")
	case o.every <= 0 || o.count < 0:
		return o, errors.New("--every must be longer than nothing, and --count must not be negative")
	}
	o.broker = u
	return o, nil
}

// send sends orders until all are sent, or ctx ends.
func send(ctx context.Context, o options) (err error) {
	to, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, to.close(closing))
	}()
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	for n := 1; o.count == 0 || n <= o.count; n++ {
		if err := to.Publish(o.topic, order(n)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// order returns the order with a number.
func order(n int) *message.Message {
	body := fmt.Sprintf(`{"number":%d,"card":"4111"}`, n)
	if n%7 == 0 {
		body = fmt.Sprintf(`{"number":%d}`, n)
	}
	// The id contains the start time of the process, so that orders of other processes have other ids.
	return message.NewMessage(began+"-"+strconv.Itoa(n), []byte(body))
}

var began = time.Now().UTC().Format("20060102T150405.000")
