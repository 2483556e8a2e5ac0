package sqscontract

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Observations of several rules.
const (
	accepted = "is accepted"
	refused  = "is refused"
	hides    = "hides it for that long"
	returns  = "comes back unchanged"
)

// check is one rule on one server.
type check struct {
	*testing.T
	api *sqs.Client
}

// queue creates a queue with attributes, names and values one after another, and returns its URL.
func (c *check) queue(attributes ...string) string { return c.create("", attributes...) }

// fifo is queue for a FIFO queue.
func (c *check) fifo(attributes ...string) string {
	return c.create(".fifo", append([]string{"FifoQueue", "true"}, attributes...)...)
}

func (c *check) create(suffix string, attributes ...string) string {
	c.Helper()
	url, err := c.tryCreate(name(suffix), attributes...)
	if err != nil {
		c.Fatal(err)
	}
	return url
}

func name(suffix string) string { return "contract-" + strings.ToLower(rand.Text()[:12]) + suffix }

// tryCreate creates a queue that is deleted at the end of the test.
func (c *check) tryCreate(name string, attributes ...string) (url string, err error) {
	all := map[string]string{}
	for i := 0; i < len(attributes); i += 2 {
		all[attributes[i]] = attributes[i+1]
	}
	out, err := c.api.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &name, Attributes: all})
	if err != nil {
		return "", err
	}
	c.Cleanup(func() {
		_, _ = c.api.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}) // it may be gone
	})
	return *out.QueueUrl, nil
}

// attributes returns all attributes of a queue.
func (c *check) attributes(url string) map[string]string {
	c.Helper()
	out, err := c.api.GetQueueAttributes(context.Background(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"}})
	if err != nil {
		c.Fatal(err)
	}
	return out.Attributes
}

// set sets an attribute of a queue.
func (c *check) set(url, name, value string) error {
	_, err := c.api.SetQueueAttributes(context.Background(), &sqs.SetQueueAttributesInput{QueueUrl: &url, Attributes: map[string]string{name: value}})
	return err
}

// send is a message to send.
type send struct {
	body       string
	delay      int32
	group      string
	dedup      string
	attributes map[string]types.MessageAttributeValue
	trace      string
}

// trySend sends a message, alone in a batch, as the adapter does.
func (c *check) trySend(url string, s send) error {
	_, err := c.trySendAll(url, s)
	return err
}

// trySendAll sends messages in one request. It returns the first failure.
func (c *check) trySendAll(url string, all ...send) ([]types.SendMessageBatchResultEntry, error) {
	in := &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: []types.SendMessageBatchRequestEntry{}}
	for i, s := range all {
		e := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &s.body, DelaySeconds: s.delay, MessageAttributes: s.attributes}
		if s.group != "" {
			e.MessageGroupId = &s.group
		}
		if s.dedup != "" {
			e.MessageDeduplicationId = &s.dedup
		}
		if s.trace != "" {
			e.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{"AWSTraceHeader": {DataType: aws.String("String"), StringValue: &s.trace}}
		}
		in.Entries = append(in.Entries, e)
	}
	out, err := c.api.SendMessageBatch(context.Background(), in)
	if err != nil {
		return nil, err
	}
	return out.Successful, failure(out.Failed)
}

// send sends messages that must be accepted.
func (c *check) send(url string, all ...send) []types.SendMessageBatchResultEntry {
	c.Helper()
	ok, err := c.trySendAll(url, all...)
	if err != nil {
		c.Fatal(err)
	}
	return ok
}

// coded is an error of SQS.
type coded interface {
	error
	ErrorCode() string
}

// entryError is the failure of an entry.
type entryError struct{ code, message string }

func (e *entryError) Error() string     { return e.code + ": " + e.message }
func (e *entryError) ErrorCode() string { return e.code }

func failure(failed []types.BatchResultErrorEntry) error {
	if len(failed) == 0 {
		return nil
	}
	return &entryError{aws.ToString(failed[0].Code), aws.ToString(failed[0].Message)}
}

// receive receives up to ten messages and hides them. It waits for seconds for the first.
func (c *check) receive(url string, seconds, hidden int32) []types.Message {
	c.Helper()
	all, err := c.tryReceive(url, 10, seconds, hidden)
	if err != nil {
		c.Fatal(err)
	}
	return all
}

func (c *check) tryReceive(url string, count, seconds, hidden int32) ([]types.Message, error) {
	out, err := c.api.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{
		QueueUrl: &url, MaxNumberOfMessages: count, WaitTimeSeconds: seconds, VisibilityTimeout: hidden,
		MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// one receives one message, which must come within 20 s.
func (c *check) one(url string, hidden int32) types.Message {
	c.Helper()
	for range 2 { // some servers end a long poll early
		if all, err := c.tryReceive(url, 1, 10, hidden); err != nil {
			c.Fatal(err)
		} else if len(all) == 1 {
			return all[0]
		}
	}
	c.Fatal("no message came")
	panic("unreachable")
}

// delete deletes messages in one request. It returns the first failure.
func (c *check) delete(url string, receipts ...*string) error {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
	for i, r := range receipts {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: r})
	}
	out, err := c.api.DeleteMessageBatch(context.Background(), in)
	if err != nil {
		return err
	}
	return failure(out.Failed)
}

// hide changes the visibility of a message.
func (c *check) hide(url string, receipt *string, seconds int32) error {
	out, err := c.api.ChangeMessageVisibilityBatch(context.Background(), &sqs.ChangeMessageVisibilityBatchInput{
		QueueUrl: &url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: aws.String("a"), ReceiptHandle: receipt, VisibilityTimeout: seconds}},
	})
	if err != nil {
		return err
	}
	return failure(out.Failed)
}

// comes says when the next message comes: within half a second of an expected time since began, or when else.
func (c *check) comes(url string, began time.Time, after time.Duration) string {
	c.Helper()
	c.one(url, 30)
	took := time.Since(began)
	switch {
	case took < after-500*time.Millisecond: // servers round to milliseconds, and moto to less
		return fmt.Sprintf("comes after %s", took.Round(100*time.Millisecond))
	case took > after+15*time.Second:
		return fmt.Sprintf("comes only after %s", took.Round(time.Second))
	default:
		return "comes in time"
	}
}

// code returns the code of an error without the prefixes that AWS also uses, or accepted.
func code(err error) string {
	if err == nil {
		return accepted
	}
	text := fullCode(err)
	return text[strings.LastIndexAny(text, ".#")+1:]
}

// verdict returns whether a request is accepted.
func verdict(err error) string {
	if err == nil {
		return accepted
	}
	if _, ok := errors.AsType[coded](err); !ok {
		return err.Error()
	}
	return refused
}

// bodies returns the bodies of messages, in order.
func bodies(all []types.Message) string {
	var texts []string
	for _, m := range all {
		texts = append(texts, aws.ToString(m.Body))
	}
	return strings.Join(texts, " ")
}

func text(v string) types.MessageAttributeValue { return typed("String", v) }

func typed(kind, v string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, StringValue: &v}
}

func binary(kind string, v []byte) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &kind, BinaryValue: v}
}

// same says whether attributes came back unchanged.
func same(got, want map[string]types.MessageAttributeValue) string {
	equal := maps.EqualFunc(got, want, func(x, y types.MessageAttributeValue) bool {
		return aws.ToString(x.DataType) == aws.ToString(y.DataType) && aws.ToString(x.StringValue) == aws.ToString(y.StringValue) && string(x.BinaryValue) == string(y.BinaryValue)
	})
	if equal {
		return returns
	}
	return fmt.Sprintf("comes back as %v", got)
}

// fullCode returns the code of an error as the SDK shows it.
func fullCode(err error) string {
	if answer, ok := errors.AsType[coded](err); ok {
		return answer.ErrorCode()
	}
	return fmt.Sprint(err)
}
