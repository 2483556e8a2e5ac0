package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/examples/internal/shopdemo"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

const noBroker = `
This needs SQS, or a server that stands for it. To start ElasticMQ,
    docker run --rm -p 9324:9324 softwaremill/elasticmq
and then run this again; or take AWS, with the keys of your environment or profile:
    go run ./examples/sqs --broker sqs://eu-central-1
`

func runDemo() {
	shopdemo.Demo{
		Program: "sqs", On: "SQS",
		Broker: brokerurl.SQS, Local: "sqs+http://localhost:9324", Usage: "`URL` of SQS, sqs://region, or of a server that stands for it, sqs+http://host:9324",
		Missing: noBroker, Look: "aws sqs list-queues --queue-name-prefix " + queue,
		Queue: queue, Kinds: []string{"web", "phone", "shop"},
		Open: func(ctx context.Context, u brokerurl.URL, sink redeliver.Sink, log watermill.LoggerAdapter) (*shopdemo.Shop, error) {
			cfg, err := u.AWS(ctx)
			if err != nil {
				return nil, err
			}
			s, err := open(ctx, cfg, u.Endpoint(), sink, log)
			if err != nil {
				return nil, err
			}
			return &shopdemo.Shop{
				Router: s.router, Place: s.place, Close: s.close, Describe: s.describe,
				DeadLetters: func(ctx context.Context) (string, []shopdemo.DeadLetter, error) {
					letters, err := deadLetters(ctx, cfg, u.Endpoint())
					return "Some of " + queue + "-dlq", letters, err
				},
			}, nil
		},
	}.Main()
}

// describe creates the queue if needed, and returns its URL.
func (s *shop) describe(ctx context.Context) (string, error) {
	if err := s.client.Subscriber().SubscribeInitialize(queue); err != nil {
		return "", err
	}
	plan, err := s.client.Plan(ctx, queue)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("The queue is %s.\nWaiting messages are in it, delayed by SQS; dead letters are in %s-dlq.", plan.Settings["QueueUrl"], queue), nil
}

// deadLetters reads some of the DLQ, as any client can. It removes nothing: the messages become visible again soon.
func deadLetters(ctx context.Context, cfg *aws.Config, endpoint string) (letters []shopdemo.DeadLetter, err error) {
	api := awssqs.NewFromConfig(*cfg, func(o *awssqs.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	dlq, err := api.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String(queue + "-dlq")})
	if err != nil {
		return nil, err
	}
	for len(letters) < shopdemo.MaxShown {
		out, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: dlq.QueueUrl, MaxNumberOfMessages: 10, VisibilityTimeout: 2, MessageAttributeNames: []string{"All"},
		})
		if err != nil || len(out.Messages) == 0 {
			return letters, err
		}
		for _, m := range out.Messages {
			// redeliver's description of a dead letter is a JSON object in one attribute. Its fields include those of a
			// DeadLetter.
			var l shopdemo.DeadLetter
			if text := m.MessageAttributes["redeliver"].StringValue; text != nil && json.Unmarshal([]byte(*text), &l) == nil {
				letters = append(letters, l)
			}
		}
	}
	return letters, nil
}
