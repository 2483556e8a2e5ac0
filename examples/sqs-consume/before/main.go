// Command before charges orders from a queue of SQS, as many services do: with its own loop. A failed message comes
// back when its visibility timeout is over, forever. ../after is the same service with redeliver.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := config.LoadDefaultConfig(ctx)
	check(err)
	client := sqs.NewFromConfig(cfg)
	queue, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(os.Args[1])})
	check(err)
	for {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 10})
		if ctx.Err() != nil {
			return
		}
		check(err)
		for _, m := range out.Messages {
			if err := charge(ctx, m); err != nil {
				log.Printf("%s is not charged: %v", *m.Body, err)
				continue
			}
			_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue.QueueUrl, ReceiptHandle: m.ReceiptHandle})
			check(err)
		}
	}
}

func charge(_ context.Context, m types.Message) error {
	if *m.Body == "declined" {
		return errors.New("card declined")
	}
	fmt.Printf("%s is charged\n", *m.Body)
	return nil
}

func check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}
