package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/internal/wait"
)

// Attribute is an attribute that redeliver sets on queues that it creates.
type Attribute struct {
	Name    string
	Needed  bool   // otherwise it is only wished: if SQS refuses it, the queue is created without it
	Without string // what holds without it
}

// Attributes are all attributes that redeliver sets. docs/reference/sqs.md has the same table.
var Attributes = []Attribute{
	{"FifoQueue", true, "SQS refuses a name that ends with `.fifo`"},
	{"KmsMasterKeyId", true, "messages of a queue with a key of yours would be stored without that key"},
	{"KmsDataKeyReusePeriodSeconds", false, "SQS asks KMS every five minutes"},
	{"SqsManagedSseEnabled", false, "SQS encrypts new queues with a key of its own"},
	{"MaximumMessageSize", false, "redeliver reads what the queue takes, and refuses one that takes less than yours"},
	{"MessageRetentionPeriod", false, "SQS keeps messages for four days; refused if `DLQ.Retention` is set"},
	{"RedrivePolicy", false, "SQS moves nothing to the DLQ; redeliver writes there anyway"},
	{"VisibilityTimeout", false, "each receive of redeliver has its own"},
}

// IsNeeded reports whether a queue needs an attribute. It does if redeliver does not know the attribute.
func IsNeeded(name string) bool {
	i := slices.IndexFunc(Attributes, func(a Attribute) bool { return a.Name == name })
	return i < 0 || Attributes[i].Needed
}

// withoutText says what holds without an attribute.
func withoutText(name string) string {
	for _, a := range Attributes {
		if a.Name == name {
			return strings.ReplaceAll(a.Without, "`", "")
		}
	}
	return "it is in QueueAttributes"
}

// Exists reports whether err means that a queue exists with other attributes.
func Exists(err error) bool {
	return slices.Contains([]string{"QueueNameExists", "QueueAlreadyExists"}, ErrorCode(err))
}

// Create creates the queue. It leaves out each attribute that SQS refuses, unless needs reports that the queue needs it.
// SQS's refusal names the attribute. leftOut says which are missing, and why.
func (q *Queue) Create(ctx context.Context, attributes map[string]string, needs func(name string) bool) (url string, leftOut []error, err error) {
	attributes = maps.Clone(attributes)
	for {
		out, err := q.API.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &q.Name, Attributes: attributes})
		name := refusedAttribute(err, attributes)
		switch {
		case err == nil:
			q.Report(ctx, "CreateQueue", nil)
			return aws.ToString(out.QueueUrl), leftOut, nil
		case Exists(err):
			q.Report(ctx, "CreateQueue", nil)
			return "", nil, err
		case name == "" || needs(name):
			shown := ErrorOf("creating queue", q.Name, err)
			if name != "" {
				shown = fmt.Errorf("%w. The queue needs the attribute %s (without it: %s). Create it yourself with the attributes %s that SQS accepts; redeliver uses it as it is",
					shown, name, withoutText(name), AttributesText(attributes))
			}
			q.Report(ctx, "CreateQueue", shown)
			return "", nil, shown
		}
		leftOut = append(leftOut, fmt.Errorf("sqs: queue %s is created without %s=%s; without it, %s: %w", q.Name, name, attributes[name], withoutText(name), RedactError(err)))
		delete(attributes, name)
	}
}

// maxCreation bounds how long SQS takes to make a new queue usable. AWS asks for one second.
const maxCreation = 10 * time.Second

// DescribeNew is Describe for a queue that was created a moment ago. It waits until SQS knows the queue.
func (q *Queue) DescribeNew(ctx context.Context, maxSize int) error {
	for began := time.Now(); ; {
		if err := q.Describe(ctx, "", maxSize); err != nil || q.Exists {
			return err
		}
		if time.Since(began) > maxCreation {
			return ErrorOf("creating queue", q.Name, errors.New("SQS reports both that it exists and that it does not; try again"))
		}
		if wait.For(ctx, 100*time.Millisecond) != nil {
			return ErrorOf("creating queue", q.Name, context.Cause(ctx))
		}
	}
}

// refusedAttribute returns the attribute that SQS's refusal names, or "".
func refusedAttribute(err error, attributes map[string]string) string {
	if err == nil || Exists(err) || IsAccessDenied(err) || !IsRefusal(err) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(err.Error()) {
			return name
		}
	}
	return ""
}
