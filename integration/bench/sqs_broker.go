package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/redeliver/redeliver/internal/awshttp"
)

// A body of SQS is text: the base64 of 768 bytes, which is 1 KiB.
const sqsValueSize = 768

// queues is the SQS server that all of its rows share, seen through the bare SDK.
type queues struct {
	endpoint string
	api      *sqs.Client
	prefix   string // of all queues of this run of the program
	serial   int
}

// sqsAWS is a client's configuration for a server that takes any credentials. requests counts its requests. No side loses an
// answer: a lost one hid ten messages for the visibility timeout, and a run of 4 s took 34.
func sqsAWS(requests *atomic.Int64) aws.Config {
	return aws.Config{
		Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""),
		// Go's own default keeps two idle connections, which every client of many goroutines would suffer from.
		HTTPClient: awshttp.WholeBodies{Next: &http.Client{Transport: &countingTransport{requests, &http.Transport{MaxIdleConnsPerHost: 100}}}},
	}
}

func at(endpoint string) func(*sqs.Options) {
	return func(o *sqs.Options) { o.BaseEndpoint = &endpoint }
}

// countingTransport counts what a user of SQS pays for.
type countingTransport struct {
	requests *atomic.Int64
	next     http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	return t.next.RoundTrip(r)
}

func dialSQS(ctx context.Context, endpoint string) (*queues, error) {
	q := &queues{
		endpoint: endpoint, api: sqs.NewFromConfig(sqsAWS(new(atomic.Int64)), at(endpoint)),
		prefix: "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36),
	}
	if _, err := q.api.ListQueues(ctx, &sqs.ListQueuesInput{}); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	return q, nil
}

func (q *queues) close() {}

func (q *queues) addresses() []string { return []string{q.endpoint} }

// version is fixed: neither SQS nor the other servers report one.
func (q *queues) version(context.Context) string { return "ElasticMQ" }

// fresh returns a name alone: the side that reads the queue creates it.
func (q *queues) fresh(_ context.Context, row string) (names, error) {
	q.serial++
	queue := fmt.Sprintf("%s-%s-%d", q.prefix, row, q.serial)
	return names{topic: queue, ours: queue, peer: queue}, nil
}

func (q *queues) url(ctx context.Context, queue string) (string, error) {
	out, err := q.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", queue, err)
	}
	return *out.QueueUrl, nil
}

// batch makes the entries of n messages, with ids from first on.
func batch(w *writer, first, n int) []types.SendMessageBatchRequestEntry {
	entries := make([]types.SendMessageBatchRequestEntry, n)
	for i := range entries {
		id := uint64(first + i)
		entries[i] = types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(base64.StdEncoding.EncodeToString(w.value(id))),
			MessageAttributes: map[string]types.MessageAttributeValue{
				uuidHeader: {DataType: aws.String("String"), StringValue: aws.String(string(uuidOf(id)))},
			},
		}
	}
	return entries
}

func (q *queues) send(ctx context.Context, url string, entries []types.SendMessageBatchRequestEntry) error {
	out, err := q.api.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err == nil && len(out.Failed) > 0 {
		err = fmt.Errorf("%d of %d entries failed, the first with %s", len(out.Failed), len(entries), aws.ToString(out.Failed[0].Message))
	}
	if err != nil {
		return fmt.Errorf("writing to %s: %w", url, err)
	}
	return nil
}

const maxEntries = 10 // of a batch

func (q *queues) preload(ctx context.Context, queue string, n int) (written, error) {
	url, err := q.url(ctx, queue)
	if err != nil {
		return written{}, err
	}
	w := newWriter()
	w.size = sqsValueSize
	batches := make(chan []types.SendMessageBatchRequestEntry)
	errs := make(chan error, 4)
	var senders sync.WaitGroup
	for range cap(errs) {
		senders.Go(func() {
			var failed error
			for b := range batches { // even after an error, so that the writer does not block
				if failed == nil {
					failed = q.send(ctx, url, b)
				}
			}
			errs <- failed
		})
	}
	for id := 0; id < n; id += maxEntries {
		batches <- batch(w, id, min(maxEntries, n-id))
	}
	close(batches)
	senders.Wait()
	close(errs)
	for failed := range errs {
		err = errors.Join(err, failed)
	}
	return w.written(), err
}

func (q *queues) steady(ctx context.Context, queue string, rate int, d time.Duration) (written, error) {
	url, err := q.url(ctx, queue)
	if err != nil {
		return written{}, err
	}
	w := newWriter()
	w.size = sqsValueSize
	err = steadily(ctx, rate, d, func(first, end int) error {
		for id := first; id < end; id += maxEntries {
			if err := q.send(ctx, url, batch(w, id, min(maxEntries, end-id))); err != nil {
				return err
			}
		}
		return nil
	})
	return w.written(), err
}

// unsettled counts what is in the queue or among the suspects, visible or not. Messages that the side's process
// received and did not run were given back, or are counted here.
func (q *queues) unsettled(ctx context.Context, s spec) (int64, error) {
	var sum int64
	for _, queue := range []string{s.Topic, s.Topic + "-suspects"} {
		url, err := q.url(ctx, queue)
		if _, none := errors.AsType[*types.QueueDoesNotExist](err); none {
			continue // a peer has none
		}
		if err != nil {
			return 0, err
		}
		out, err := q.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
		})
		if err != nil {
			return 0, err
		}
		for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
			n, err := strconv.ParseInt(out.Attributes[name], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

// dead takes what is in the DLQ.
func (q *queues) dead(ctx context.Context, s spec) (*contents, error) {
	url, err := q.url(ctx, s.Topic+"-dlq")
	if err != nil {
		return nil, err
	}
	found := &contents{distinct: make(map[uint64]int)}
	for {
		out, err := q.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: maxEntries})
		if err != nil || len(out.Messages) == 0 {
			return found, err
		}
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
		for i, m := range out.Messages {
			found.add(decode([]byte(*m.Body)))
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := q.api.DeleteMessageBatch(ctx, in); err != nil {
			return found, err
		}
	}
}

func (q *queues) drop(ctx context.Context, n names) error {
	for _, queue := range []string{n.topic, n.topic + "-dlq", n.topic + "-suspects"} {
		url, err := q.url(ctx, queue)
		if err != nil {
			continue // there is none
		}
		if _, err := q.api.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			return err
		}
	}
	return nil
}

// decode returns the value in a body, or nil if it has none.
func decode(body []byte) []byte {
	value := make([]byte, base64.StdEncoding.DecodedLen(len(body)))
	n, err := base64.StdEncoding.Decode(value, body)
	if err != nil {
		return nil
	}
	return value[:n]
}
