package brokerstate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// AWS returns a configuration for a server that accepts any credentials.
func AWS() aws.Config {
	return aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
}

// SQS counts the messages in a queue and in its queue of suspects: visible, in flight or delayed. ElasticMQ counts
// exactly.
func SQS(ctx context.Context, api *awssqs.Client, url string) (unsettled int64, detail string, err error) {
	n, detail, err := countSQS(ctx, api, url)
	if err != nil {
		return 0, "", err
	}
	more, d, err := countSQS(ctx, api, url+"-suspects")
	return n + more, detail + d, err
}

// countSQS counts the messages of one queue.
func countSQS(ctx context.Context, api *awssqs.Client, url string) (sum int64, detail string, err error) {
	out, err := api.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		return 0, "", fmt.Errorf("asking for %s: %w", url, err)
	}
	var where strings.Builder
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		n, err := strconv.ParseInt(out.Attributes[name], 10, 64)
		if err != nil {
			return 0, "", err
		}
		if n > 0 {
			sum += n
			fmt.Fprintf(&where, " %d %s in %s", n, strings.TrimPrefix(name, "ApproximateNumberOf"), queueName(url))
		}
	}
	return sum, where.String(), nil
}

// TakeSQS removes all messages from a queue. It calls take before it deletes a message, so take may get one twice. It
// also waits for messages of receives whose answers were lost (the SDK loses some, see package internal/awshttp): they
// are visible again after the visibility timeout.
func TakeSQS(ctx context.Context, api *awssqs.Client, url string, visibility time.Duration, take func(types.Message)) error {
	for {
		out, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, VisibilityTimeout: int32(visibility / time.Second),
		})
		if err != nil {
			return fmt.Errorf("reading %s: %w", queueName(url), err)
		}
		for _, m := range out.Messages {
			take(m)
			if _, err := api.DeleteMessage(ctx, &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return fmt.Errorf("taking from %s: %w", queueName(url), err)
			}
		}
		if len(out.Messages) > 0 {
			continue
		}
		if n, _, err := countSQS(ctx, api, url); err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func queueName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }
