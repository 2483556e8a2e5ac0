// Command worker consumes one topic in one group, or one queue, and fails as --fail says. It is for trying redeliver by
// hand and from scripts. It writes one JSON line for each event to stdout, unbuffered, and everything else to stderr.
//
//	worker --broker kafka://localhost:9092 --topic orders --group billing --fail 'attempt<3'
//	worker --broker amqp://guest:guest@localhost:5672/ --topic orders --fail 'attempt<3'
//	worker --broker sqs://eu-central-1 --topic orders --fail 'attempt<3'
//	worker --broker sqs+http://localhost:9324 --topic orders.fifo --fail 'attempt<3'
//
// On RabbitMQ and SQS --topic is both the queue, which is created if it does not exist, and the group, and --group is
// ignored. Nothing else is different. sqs:// takes its keys from AWS's own configuration. sqs+http:// is a server that
// replaces SQS, such as ElasticMQ.
//
// The lines are {"event","id","topic","attempt","due","at","reason","key"}:
//
//	attempt      the handler has begun; attempt is its number, due its due time (not on a first delivery)
//	commit       the message was acked; attempt is the one that succeeded
//	retry        the message waits; attempt is the count so far, due the next due time
//	dead_letter  the message is in the DLQ; attempt is the count, reason the cause
//
// Times are RFC 3339 in UTC with milliseconds. topic is the origin. key is the Kafka key as text, or the message group
// of an SQS FIFO queue. A key that is not UTF-8, or begins with "base64:", is written as "base64:" and its base64. A
// null key is omitted. RabbitMQ and other queues of SQS have none.
//
// A message that ends its process (--fail exit) writes its attempt and nothing more. redeliver counts such crashes:
// after some, the next process writes the dead_letter of the message, with the reason crashed and without a new
// attempt. The number of attempts does not include the crashed ones.
//
// With --plan the program describes how the retries would wait and what would be created, and ends.
//
// SIGTERM and SIGINT end the program gracefully with exit status 0. The status is 2 for wrong arguments and 1 for all
// other failures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/middleware"
)

const (
	exitFailed = 1
	exitUsage  = 2

	// drainTimeout bounds how long handlers have to finish at the end.
	drainTimeout = 5 * time.Second
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "worker: %v\n", err)
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once

	log := slog.New(slog.NewTextHandler(stderr, nil))
	if err := work(ctx, o, newJournal(stdout, log), log, stdout); err != nil {
		fmt.Fprintf(stderr, "worker: %v\n", err)
		if _, wrong := errors.AsType[usageError](err); wrong {
			return exitUsage
		}
		return exitFailed
	}
	return 0
}

// work consumes until ctx ends, or prints the plan.
func work(ctx context.Context, o options, j *journal, log *slog.Logger, stdout io.Writer) (err error) {
	b, err := connect(ctx, o, j)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*drainTimeout)
		defer cancel()
		if bad := b.close(closing); err == nil {
			err = bad
		}
	}()
	j.key = b.key
	if o.plan {
		plan, err := b.plan(ctx, o.topic)
		if err == nil {
			_, err = fmt.Fprint(stdout, plan)
		}
		return err
	}
	if o.createTopic {
		if err := b.subscriber.SubscribeInitialize(o.topic); err != nil {
			return err
		}
	}

	// The Router waits a little longer than the subscriber, for a handler that hangs.
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: drainTimeout + time.Second}, quiet(log))
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("worker", o.topic, b.subscriber, func(msg *message.Message) error {
		j.attempt(msg)
		return o.answer(msg)
	})
	return router.Run(ctx)
}

// quiet returns Watermill's log without routine messages.
func quiet(log *slog.Logger) watermill.LoggerAdapter {
	return watermill.NewSlogLoggerWithLevelMapping(log, map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug})
}
