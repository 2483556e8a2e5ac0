package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/deadletter"
)

// Queue is one queue, as SQS describes it.
type Queue struct {
	API  *sqs.Client
	Name string
	Kind Kind
	URL  string
	ARN  string
	FIFO bool

	Exists           bool
	AttributesDenied bool // reading its attributes is denied
	Attributes       map[string]string

	// OnResult is called with the result of each request about the queue's messages, attributes and tags; nil for none.
	// err is nil if the queue answered. It is nil, too, if only a single message was refused or a receipt was stale.
	OnResult func(action string, err error)

	MaxSize int   // bytes of a message
	Delay   int32 // seconds, for messages without a delay of their own

	retention atomic.Int64 // a time.Duration
	readAt    atomic.Int64 // when the retention was read, in nanoseconds since 1970
}

// Kind is the purpose of a queue.
type Kind string

// The kinds of queues.
const (
	MainQueue    Kind = "queue"
	SuspectQueue Kind = "suspects"
	DeadQueue    Kind = "dlq"
	NoteQueue    Kind = "place" // notes about messages that wait in their place in a FIFO queue
)

// SQS's limits of the time for which a queue keeps a message.
const (
	MinRetention = time.Minute
	MaxRetention = 14 * 24 * time.Hour
)

// ReadInterval is how long the settings of a queue are believed.
const ReadInterval = 5 * time.Minute

// maxDelay is SQS's limit for one message.
const maxDelay = 900 * time.Second

// Retention returns for how long the queue keeps a message; 0 means unknown.
func (q *Queue) Retention() time.Duration { return time.Duration(q.retention.Load()) }

// SetRetention stores a retention that was read now.
func (q *Queue) SetRetention(r time.Duration) {
	q.retention.Store(int64(r))
	q.readAt.Store(time.Now().UnixNano())
}

// RefreshRetention reads the retention again if that was long ago. After an error the old one stays.
func (q *Queue) RefreshRetention(ctx context.Context) {
	if q.AttributesDenied || time.Since(time.Unix(0, q.readAt.Load())) < ReadInterval {
		return
	}
	if attributes, err := q.ReadAttributes(ctx, types.QueueAttributeNameMessageRetentionPeriod); err == nil {
		q.SetRetention(retentionOf(attributes))
	}
}

// MaxDelay returns the longest DelaySeconds of a message in this queue. SQS deletes a message at the end of the
// retention although its delay is not over. So half of the retention stays for somebody to receive it.
func (q *Queue) MaxDelay() time.Duration {
	if r := q.Retention(); r > 0 {
		return min(maxDelay, max(r, MinRetention)/2).Truncate(time.Second)
	}
	return maxDelay
}

// retentionOf returns the retention in attributes; 0 means unknown.
func retentionOf(attributes map[string]string) time.Duration {
	n, err := strconv.Atoi(attributes["MessageRetentionPeriod"])
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// DefaultMaxMessageSize is the size of the largest message of a queue that does not report it.
const DefaultMaxMessageSize = 256 << 10

// Describe asks SQS for the queue. A missing queue gets no URL. account is the owner of the queue, or "" for the
// client's own. maxSize bounds MaxSize, if it is above 0.
func (q *Queue) Describe(ctx context.Context, account string, maxSize int) error {
	q.MaxSize = cmp.Or(maxSize, DefaultMaxMessageSize)
	if q.URL == "" {
		in := &sqs.GetQueueUrlInput{QueueName: &q.Name}
		if account != "" {
			in.QueueOwnerAWSAccountId = &account
		}
		out, err := q.API.GetQueueUrl(ctx, in)
		switch {
		case IsMissingQueue(err):
			return nil
		case err != nil:
			return ErrorOf("looking for queue", q.Name, err)
		}
		q.URL = aws.ToString(out.QueueUrl)
	}
	attributes, err := q.ReadAttributes(ctx, types.QueueAttributeNameAll)
	switch {
	case IsMissingQueue(err):
	case IsAccessDenied(err):
		q.Exists, q.AttributesDenied = true, true
	case err != nil:
		return err
	default:
		q.setAttributes(attributes, maxSize)
	}
	return nil
}

// setAttributes stores the attributes that SQS reports.
func (q *Queue) setAttributes(attributes map[string]string, maxSize int) {
	q.Exists, q.Attributes, q.ARN = true, attributes, attributes["QueueArn"]
	if n, err := strconv.Atoi(attributes["MaximumMessageSize"]); err == nil && n > 0 {
		q.MaxSize = min(n, cmp.Or(maxSize, n))
	}
	if n, err := strconv.ParseInt(attributes["DelaySeconds"], 10, 32); err == nil {
		q.Delay = int32(n)
	}
	q.SetRetention(retentionOf(attributes))
}

// RedrivePolicy returns the ARN to which SQS itself moves messages, and after how many receives. ok is false if it
// moves none.
func (q *Queue) RedrivePolicy() (target string, maxReceives int, ok bool) {
	var p struct {
		Target      string      `json:"deadLetterTargetArn"`
		MaxReceives json.Number `json:"maxReceiveCount"`
	}
	if raw := q.Attributes["RedrivePolicy"]; raw == "" || json.Unmarshal([]byte(raw), &p) != nil {
		return "", 0, false
	}
	maxReceives, err := strconv.Atoi(p.MaxReceives.String())
	if err != nil {
		return "", 0, false
	}
	return p.Target, maxReceives, true
}

// AllowsSource reports whether the queue's RedriveAllowPolicy lets SQS move messages here from the queue with an ARN.
func (q *Queue) AllowsSource(arn string) bool {
	var p struct {
		Permission string   `json:"redrivePermission"`
		Sources    []string `json:"sourceQueueArns"`
	}
	if raw := q.Attributes["RedriveAllowPolicy"]; raw == "" || json.Unmarshal([]byte(raw), &p) != nil {
		return true
	}
	return p.Permission != "denyAll" && (p.Permission != "byQueue" || slices.Contains(p.Sources, arn))
}

// AttributesText formats attributes in order.
func AttributesText(attributes map[string]string) string {
	parts := make([]string, 0, len(attributes))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		parts = append(parts, name+"="+attributes[name])
	}
	return strings.Join(parts, ", ")
}

// ReadAttributes asks SQS for attributes.
func (q *Queue) ReadAttributes(ctx context.Context, names ...types.QueueAttributeName) (map[string]string, error) {
	out, err := q.API.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.URL, AttributeNames: names})
	if err != nil {
		err = ErrorOf("reading the attributes of queue", q.Name, err)
		q.Report(ctx, "GetQueueAttributes", err)
		return nil, err
	}
	q.Report(ctx, "GetQueueAttributes", nil)
	return out.Attributes, nil
}

// Tags asks SQS for the queue's tags.
func (q *Queue) Tags(ctx context.Context) (map[string]string, error) {
	out, err := q.API.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: &q.URL})
	if err != nil {
		err = ErrorOf("reading the tags of queue", q.Name, err)
		q.Report(ctx, "ListQueueTags", err)
		return nil, err
	}
	q.Report(ctx, "ListQueueTags", nil)
	return out.Tags, nil
}

// Counts are SQS's estimates of how many messages a queue has.
type Counts struct{ Visible, Hidden, Delayed int64 }

// All returns the number of all messages.
func (c Counts) All() int64 { return c.Visible + c.Hidden + c.Delayed }

var countNames = []types.QueueAttributeName{
	types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
	types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
}

// Count asks SQS for the present counts.
func (q *Queue) Count(ctx context.Context) (Counts, error) {
	attributes, err := q.ReadAttributes(ctx, countNames...)
	if err != nil {
		return Counts{}, err
	}
	return q.parseCounts(attributes)
}

// LastCounts returns the counts at the last Describe.
func (q *Queue) LastCounts() (Counts, error) { return q.parseCounts(q.Attributes) }

func (q *Queue) parseCounts(attributes map[string]string) (c Counts, err error) {
	for i, n := range []*int64{&c.Visible, &c.Hidden, &c.Delayed} {
		text := attributes[string(countNames[i])]
		if text == "" && i > 0 { // some servers report only the visible messages
			continue
		}
		if *n, err = strconv.ParseInt(text, 10, 64); err != nil {
			return Counts{}, fmt.Errorf("sqs: the %s of queue %s is %q: %w", countNames[i], q.Name, text, deadletter.ErrNotReported)
		}
	}
	return c, nil
}

const (
	// MaxName is SQS's limit of the length of a queue's name, .fifo included.
	MaxName = 80
	// FIFOSuffix ends the names of FIFO queues.
	FIFOSuffix = ".fifo"

	maxSuffix = len("-suspects")
)

// IsFIFO reports whether a queue's name is that of a FIFO queue.
func IsFIFO(queue string) bool { return strings.HasSuffix(queue, FIFOSuffix) }

// SiblingName returns a queue's name with a suffix. If there is no room for the suffix, it cuts the name and adds a
// hash of the whole name.
func SiblingName(queue, suffix string) string {
	stem := strings.TrimSuffix(queue, FIFOSuffix)
	end := queue[len(stem):]
	if maxStem := MaxName - maxSuffix - len(end); len(stem) > maxStem {
		sum := sha256.Sum256([]byte(queue))
		hash := "-" + hex.EncodeToString(sum[:8])
		stem = stem[:maxStem-len(hash)] + hash
	}
	return stem + suffix + end
}
