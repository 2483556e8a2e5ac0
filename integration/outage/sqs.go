package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	rsqs "github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/awshttp"
)

// sqsWorkers is ConsumeWorkers of the peer. Each worker has one message in flight.
const sqsWorkers = 10

// onSQS is a broker that uses AWS's SDK.
type onSQS struct {
	endpoint string
	api      *sqs.Client
}

func sqsAWS() aws.Config {
	return aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""),
		HTTPClient: awshttp.WholeBodies{Next: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}},
	}
}

func (s *onSQS) at(o *sqs.Options) { o.BaseEndpoint = &s.endpoint }

func dialSQS(ctx context.Context) (broker, error) {
	s := &onSQS{endpoint: os.Getenv(brokers.EnvSQS)}
	s.api = sqs.NewFromConfig(sqsAWS(), s.at)
	if _, err := s.api.ListQueues(ctx, &sqs.ListQueuesInput{}); err != nil {
		return nil, fmt.Errorf("asking the server of %s: %w", brokers.EnvSQS, err)
	}
	return s, nil
}

// version returns a fixed text, because neither SQS nor ElasticMQ reports a version.
func (s *onSQS) version() string { return "ElasticMQ" }

func (s *onSQS) prepare(ctx context.Context, queue string) error {
	for _, name := range []string{queue, poisonOf(queue)} {
		if _, err := s.api.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name}); err != nil {
			return fmt.Errorf("creating %s: %w", name, err)
		}
	}
	return nil
}

func (s *onSQS) url(ctx context.Context, queue string) (*string, error) {
	out, err := s.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", queue, err)
	}
	return out.QueueUrl, nil
}

func (s *onSQS) write(ctx context.Context, queue string, first, end int) error {
	const most = 10
	url, err := s.url(ctx, queue)
	if err != nil {
		return err
	}
	for ; first < end; first += most {
		in := &sqs.SendMessageBatchInput{QueueUrl: url}
		for id := first; id < min(end, first+most); id++ {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(id)), MessageBody: aws.String(string(body(id))),
				MessageAttributes: map[string]types.MessageAttributeValue{uuidHeader: {DataType: aws.String("String"), StringValue: aws.String(uuidOf(id))}},
			})
		}
		out, err := s.api.SendMessageBatch(ctx, in)
		if err != nil {
			return err
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("%d of %d failed: %s", len(out.Failed), len(in.Entries), aws.ToString(out.Failed[0].Message))
		}
	}
	return nil
}

func (s *onSQS) dead(ctx context.Context, queue string) (map[int]int, error) {
	url, err := s.url(ctx, queue)
	if err != nil {
		return nil, err
	}
	found := make(map[int]int)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for empty := 0; empty < 2; {
		out, err := s.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, VisibilityTimeout: 120,
		})
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", queue, err)
		}
		if len(out.Messages) == 0 {
			empty++
			continue
		}
		for _, m := range out.Messages {
			id := -1
			if n, err := idOf(aws.ToString(m.MessageAttributes[uuidHeader].StringValue)); err == nil {
				id = n
			}
			found[id]++
		}
	}
	return found, nil
}

func (s *onSQS) dlq(queue string) string { return queue + "-dlq" }

func (s *onSQS) close() {}

func (s *onSQS) ours(_ string, p redeliver.Policy, sink redeliver.Sink) (setup, error) {
	cfg := sqsAWS()
	client, err := rsqs.Open(context.Background(), rsqs.Config{AWS: &cfg, Endpoint: s.endpoint, Policy: p, Sink: sink})
	if err != nil {
		return setup{}, err
	}
	return setup{
		sub: client.Subscriber(), close: func() { _ = client.Close(context.Background()) },
		settings: "defaults",
	}, nil
}

// peer returns watermill-aws with several workers.
func (s *onSQS) peer(string) (setup, error) {
	fns := []func(*sqs.Options){s.at}
	sub, err := wsqs.NewSubscriber(wsqs.SubscriberConfig{AWSConfig: sqsAWS(), OptFns: fns, ConsumeWorkers: sqsWorkers}, watermill.NopLogger{})
	if err != nil {
		return setup{}, err
	}
	pub, err := wsqs.NewPublisher(wsqs.PublisherConfig{AWSConfig: sqsAWS(), OptFns: fns}, watermill.NopLogger{})
	if err != nil {
		return setup{}, errors.Join(err, sub.Close())
	}
	return setup{
		sub: sub, pub: pub, settings: fmt.Sprintf("watermill-aws's defaults, ConsumeWorkers %d, each with one message in flight", sqsWorkers),
		close: func() {
			_ = sub.Close()
			_ = pub.Close()
		},
	}, nil
}
