// Command withbrokers runs a command beside real brokers:
//
//	go run ./integration/cmd/withbrokers --kafka -- go test ./integration/...
//
// It starts the brokers that are asked for (or takes those that the environment gives), tells their addresses to the
// command in the environment, passes its input and output through, stops the brokers when it has ended, and exits as
// it did: with its status, or 128 and the signal's number. What withbrokers itself could not do is exit status 1, a
// wrong call 2.
//
// "go run" reports every failure as 1 and does not pass SIGTERM on; scripts build the program first, as make does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redeliver/redeliver/integration/brokers"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("withbrokers: ")
	os.Exit(run(os.Args[1:], os.Stderr))
}

type request struct {
	kafka   bool
	options brokers.KafkaOptions
	command []string
}

func parse(args []string, stderr io.Writer) (request, error) {
	r := request{options: brokers.KafkaOptions{Properties: map[string]string{}}}
	flags := flag.NewFlagSet("withbrokers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&r.kafka, "kafka", false, "start a Kafka and put its address into "+brokers.EnvKafka)
	flags.StringVar(&r.options.Heap, "kafka-heap", "", "the -Xmx of Kafka's JVM (default 1g)")
	flags.Func("kafka-set", "a server property for Kafka, `name=value`; may be repeated", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return errors.New("want name=value")
		}
		r.options.Properties[name] = value
		return nil
	})
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: withbrokers --kafka [--kafka-heap 1g] [--kafka-set NAME=VALUE] -- COMMAND ARGS...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return r, err
	}
	r.command = flags.Args()
	switch {
	case !r.kafka:
		return r, errors.New("no broker is asked for; say --kafka")
	case len(r.command) == 0:
		return r, errors.New("no command is given; put it behind --")
	}
	return r, nil
}

func run(args []string, stderr io.Writer) int {
	r, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "withbrokers: %v\n", err)
		return exitUsage
	}

	// From here on a signal ends things in order. While the brokers start it cancels that; later it goes to the
	// command, whose end stops them.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancelCause(context.Background()) // the brokers' life
	defer cancel(nil)
	kafka, err := start(ctx, cancel, signals, r.options)
	if err != nil {
		log.Print(err)
		return exitFailed
	}
	env := append(os.Environ(), brokers.EnvKafka+"="+strings.Join(kafka.Addrs(), ","))
	code, err := command(r.command, env, signals)
	if err != nil {
		log.Print(err)
	}
	if code != 0 {
		kafka.KeepLog()
	}
	if err := kafka.Stop(); err != nil {
		log.Print(err)
		code = max(code, exitFailed)
	}
	return code
}

// start starts the broker, or gives up at a signal.
func start(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal, o brokers.KafkaOptions) (*brokers.Broker, error) {
	type result struct {
		broker *brokers.Broker
		err    error
	}
	done := make(chan result, 1)
	go func() {
		b, err := brokers.Kafka(ctx, o)
		done <- result{b, err}
	}()
	for {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%s before the brokers were up", s))
		case r := <-done:
			if cause := context.Cause(ctx); cause != nil {
				if r.broker != nil {
					_ = r.broker.Stop()
				}
				return nil, cause
			}
			return r.broker, r.err
		}
	}
}
