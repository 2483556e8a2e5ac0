package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	rsqs "github.com/redeliver/redeliver/adapters/sqs"
)

// The peers of the SQS rows, beside watermill-aws with its defaults.
const (
	tenWorkers side = "peer-ten-workers"
	bare       side = "bare-sdk"
)

func (s spec) openSQS(ctx context.Context, sink redeliver.Sink) (*consumer, error) {
	requests := new(atomic.Int64)
	cfg := sqsAWS(requests)
	var c *consumer
	var err error
	switch s.Side {
	case peer:
		c, err = s.openWatermillAWS(cfg, 0)
	case tenWorkers:
		c, err = s.openWatermillAWS(cfg, 10)
	case bare:
		c = s.openRawSQS(ctx, cfg)
	default:
		c, err = s.openOurSQS(ctx, cfg, sink)
	}
	if err != nil {
		return nil, err
	}
	c.requests = requests.Load
	return c, nil
}

// openOurSQS opens our side: the defaults, except for what a row tests.
func (s spec) openOurSQS(ctx context.Context, cfg aws.Config, sink redeliver.Sink) (*consumer, error) {
	client, err := rsqs.Open(ctx, rsqs.Config{
		AWS: &cfg, Endpoint: s.Brokers[0], Policy: s.policy(), MaxInFlight: s.InFlight, Sink: sink,
	})
	if err != nil {
		return nil, err
	}
	return s.ours(client.Subscriber(), client.Close, fmt.Sprintf("defaults, MaxInFlight %d, %d pollers", s.InFlight, rsqs.DefaultPollers)), nil
}

// openWatermillAWS is watermill-aws with its defaults, one message a request, and that many workers; 0 means its own
// number, one.
func (s spec) openWatermillAWS(cfg aws.Config, workers int) (*consumer, error) {
	sub, err := wsqs.NewSubscriber(wsqs.SubscriberConfig{
		AWSConfig: cfg, OptFns: []func(*sqs.Options){at(s.Brokers[0])}, ConsumeWorkers: workers,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return &consumer{
		sub: sub, settings: fmt.Sprintf("watermill-aws's defaults, ConsumeWorkers %d", max(1, workers)),
		provision: func() error { return sub.SubscribeInitialize(s.Topic) },
		close:     func() { _ = sub.Close() },
	}, nil
}

// openRawSQS receives ten and deletes ten with the SDK alone, in as many goroutines as our side has pollers.
func (s spec) openRawSQS(ctx context.Context, cfg aws.Config) *consumer {
	api := sqs.NewFromConfig(cfg, at(s.Brokers[0]))
	polling, stop := context.WithCancel(context.WithoutCancel(ctx))
	var pollers sync.WaitGroup
	return &consumer{
		settings: fmt.Sprintf("aws-sdk-go-v2, receive 10 and delete 10 in %d goroutines", rsqs.DefaultPollers),
		provision: func() error {
			_, err := api.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &s.Topic})
			return err
		},
		begin: func(h *handling, failed func(error)) error {
			url, err := api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &s.Topic})
			if err != nil {
				return err
			}
			for range rsqs.DefaultPollers {
				pollers.Go(func() {
					for polling.Err() == nil {
						if err := h.pollBare(polling, api, *url.QueueUrl); err != nil && polling.Err() == nil {
							failed(err)
							return
						}
					}
				})
			}
			return nil
		},
		close: func() {
			stop()
			pollers.Wait()
		},
	}
}

// pollBare handles one receive.
func (h *handling) pollBare(ctx context.Context, api *sqs.Client, url string) error {
	out, err := api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: maxEntries, WaitTimeSeconds: 20, MessageAttributeNames: []string{"All"},
	})
	if err != nil || len(out.Messages) == 0 {
		return err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
	for i, m := range out.Messages {
		h.meter.enter(h.spec.value([]byte(*m.Body)))
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
	}
	deleted, err := api.DeleteMessageBatch(ctx, in)
	if err != nil {
		return err
	}
	if len(deleted.Failed) > 0 {
		return fmt.Errorf("%d entries were not deleted", len(deleted.Failed))
	}
	for range out.Messages {
		h.meter.settle()
	}
	return nil
}

// value is the message's value in a payload.
func (s spec) value(payload []byte) []byte {
	if s.System == onSQS {
		return decode(payload)
	}
	return payload
}
