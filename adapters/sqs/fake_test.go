package sqs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" // required by the protocol
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
)

// fake implements enough of SQS for tests in virtual time, with faults on demand. It is the SDK's HTTP client, so
// there is no network. It refuses unknown requests. It is stricter than SQS about receipts: one that is expired, or
// is not the latest, is invalid.
type fake struct {
	mu       sync.Mutex
	queues   map[string]*fakeQueue
	seq      int
	tick     time.Duration
	requests map[string]int
	refuses  string // name of an attribute with which no message is accepted
	// fault is called before each request. The request fails with the failure that it returns, and is only carried
	// out if after is set.
	fault              func(action, queue string, in map[string]any) *failure
	abandoned          int            // receives for which the client did not wait
	abandonedReceives  sync.WaitGroup // abandoned receives that still run
	acceptsOldReceipts bool           // a deletion with an old receipt reports success without effect, as on SQS
	expired            int            // messages that were deleted at the end of the retention
	blockedReceives    int            // receives that wait although there are messages, because their groups are held
	// entry is called for each entry of a batch; a code makes the entry fail.
	entry func(action, queue string, entry map[string]any) string
}

// failure is how a request fails.
type failure struct {
	status int
	code   string
	after  bool          // the request is carried out nevertheless
	err    error         // instead of an answer
	text   string        // of the error
	delay  time.Duration // the request succeeds after this delay
}

type fakeQueue struct {
	attributes map[string]string
	messages   []*fakeMessage
	seen       map[string]*fakeMessage // the last message of each deduplication id
	tags       map[string]string
}

type fakeMessage struct {
	id, body, receipt string
	attributes        map[string]any
	system            map[string]any
	visible           time.Time
	sent              time.Time
	count             int
	received          time.Time
}

func newFake() *fake {
	return &fake{queues: make(map[string]*fakeQueue), requests: make(map[string]int), tick: 100 * time.Millisecond}
}

func (f *fake) client(t *testing.T, cfg Config) *Client {
	t.Helper()
	if cfg.Sink == nil {
		cfg.Sink = redeliver.SinkFunc(func(redeliver.Event) {})
	}
	c, err := Open(t.Context(), f.config(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// config returns a configuration that uses the fake.
func (f *fake) config(cfg Config) Config {
	cfg.AWS = &aws.Config{
		Region: "eu-west-1", HTTPClient: f, Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLEEXAMPLE", "s3cr3tk3y", "t0k3n"),
		Retryer: func() aws.Retryer { return aws.NopRetryer{} },
	}
	cfg.Endpoint = "http://sqs.test"
	return cfg
}

// Do implements aws.HTTPClient.
func (f *fake) Do(req *http.Request) (*http.Response, error) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var in map[string]any
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, err
	}
	action := strings.TrimPrefix(req.Header.Get("X-Amz-Target"), "AmazonSQS.")
	name, _ := in["QueueName"].(string)
	if url, ok := in["QueueUrl"].(string); ok {
		name = url[strings.LastIndexByte(url, '/')+1:]
	}
	f.mu.Lock()
	f.requests[action]++
	var fails *failure
	if f.fault != nil {
		fails = f.fault(action, name, in)
	}
	f.mu.Unlock()
	if fails != nil && fails.delay > 0 {
		<-time.After(fails.delay)
		fails = nil
	}
	if fails != nil && !fails.after {
		return fails.respond(req)
	}
	out, code := f.answer(req.Context(), action, name, in)
	if fails != nil {
		return fails.respond(req)
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if code != "" {
		return (&failure{status: 400, code: code}).respond(req)
	}
	return writeAnswer(req, 200, out)
}

func (x *failure) respond(req *http.Request) (*http.Response, error) {
	if x.err != nil {
		return nil, x.err
	}
	return writeAnswer(req, x.status, map[string]any{"__type": "com.amazonaws.sqs#" + x.code, "message": cmp.Or(x.text, "injected by the test")})
}

func writeAnswer(req *http.Request, status int, out any) (*http.Response, error) {
	body, err := json.Marshal(out)
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Request: req,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, err
}

func (f *fake) answer(ctx context.Context, action, name string, in map[string]any) (out map[string]any, code string) {
	if action == "ReceiveMessage" {
		return f.receive(ctx, name, in)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[name]
	if q == nil && action != "CreateQueue" {
		return nil, "QueueDoesNotExist"
	}
	switch action {
	case "CreateQueue":
		if q == nil {
			q = &fakeQueue{attributes: map[string]string{"QueueArn": "arn:aws:sqs:eu-west-1:1:" + name}}
			f.queues[name] = q
		}
		given, _ := in["Attributes"].(map[string]any)
		for k, v := range given {
			q.attributes[k], _ = v.(string)
		}
		return map[string]any{"QueueUrl": "http://sqs.test/1/" + name}, ""
	case "GetQueueUrl":
		return map[string]any{"QueueUrl": "http://sqs.test/1/" + name}, ""
	case "GetQueueAttributes":
		attributes := map[string]string{"ApproximateNumberOfMessages": fmt.Sprint(q.available(time.Now())), "ApproximateNumberOfMessagesDelayed": "0", "ApproximateNumberOfMessagesNotVisible": "0"}
		maps.Copy(attributes, q.attributes)
		return map[string]any{"Attributes": attributes}, ""
	case "ListQueueTags":
		return map[string]any{"Tags": maps.Clone(q.tags)}, ""
	case "TagQueue":
		q.tags = map[string]string{}
		for k, v := range in["Tags"].(map[string]any) {
			q.tags[k], _ = v.(string)
		}
		return map[string]any{}, ""
	case "UntagQueue":
		for _, k := range in["TagKeys"].([]any) {
			delete(q.tags, k.(string))
		}
		return map[string]any{}, ""
	case "SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch":
		return f.batch(action, name, q, in)
	default:
		return nil, "UnsupportedOperation"
	}
}

// available counts the messages that are not hidden. Like SQS, it includes messages whose group is held.
func (q *fakeQueue) available(now time.Time) (n int) {
	for _, m := range q.messages {
		if !m.visible.After(now) {
			n++
		}
	}
	return n
}

func (f *fake) batch(action, name string, q *fakeQueue, in map[string]any) (map[string]any, string) {
	entries, _ := in["Entries"].([]any)
	if len(entries) == 0 || len(entries) > 10 {
		return nil, "TooManyEntriesInBatchRequest"
	}
	ok, failed := []any{}, []any{}
	for _, item := range entries {
		e, _ := item.(map[string]any)
		code := ""
		if f.entry != nil {
			code = f.entry(action, name, e)
		}
		var done map[string]any
		if code == "" {
			done, code = f.batchEntry(action, name, q, e)
		}
		if code != "" {
			failed = append(failed, map[string]any{"Id": e["Id"], "Code": code, "SenderFault": code != "InternalError" && code != "RequestThrottled", "Message": "injected by the test"})
			continue
		}
		done["Id"] = e["Id"]
		ok = append(ok, done)
	}
	return map[string]any{"Successful": ok, "Failed": failed}, ""
}

func (f *fake) batchEntry(action, name string, q *fakeQueue, e map[string]any) (map[string]any, string) {
	now := time.Now()
	if action == "SendMessageBatch" {
		return f.send(name, q, e, now)
	}
	at := -1
	for i, m := range q.messages {
		if m.receipt == e["ReceiptHandle"] && m.visible.After(now) {
			at = i
		}
	}
	if at < 0 && f.acceptsOldReceipts && action == "DeleteMessageBatch" {
		return map[string]any{}, ""
	}
	if at < 0 {
		return nil, "ReceiptHandleIsInvalid"
	}
	if action == "DeleteMessageBatch" {
		q.messages = append(q.messages[:at:at], q.messages[at+1:]...)
		return map[string]any{}, ""
	}
	m := q.messages[at]
	seconds, _ := e["VisibilityTimeout"].(float64)
	until := now.Add(time.Duration(seconds) * time.Second)
	if until.After(m.received.Add(12 * time.Hour)) {
		return nil, "InvalidParameterValue"
	}
	m.visible = until
	return map[string]any{}, ""
}

func (f *fake) send(name string, q *fakeQueue, e map[string]any, now time.Time) (map[string]any, string) {
	body, _ := e["MessageBody"].(string)
	attributes, _ := e["MessageAttributes"].(map[string]any)
	fifo := strings.HasSuffix(name, ".fifo")
	delay, _ := e["DelaySeconds"].(float64)
	group, _ := e["MessageGroupId"].(string)
	switch {
	case body == "" || !wire.IsValidText(body):
		return nil, "InvalidMessageContents"
	case len(attributes) > 10 || delay > 900 || fifo && (delay > 0 || group == "") || q.tooLarge(body, attributes) || attributes[f.refuses] != nil:
		return nil, "InvalidParameterValue"
	}
	if fifo { // a duplicate within five minutes is accepted and dropped
		dedup := fmt.Sprint(e["MessageDeduplicationId"])
		if m := q.seen[dedup]; m != nil && now.Sub(m.sent) < 5*time.Minute {
			return map[string]any{"MessageId": m.id, "MD5OfMessageBody": sum(body)}, ""
		}
	}
	f.seq++
	m := &fakeMessage{
		id: fmt.Sprintf("id-%d", f.seq), body: body, attributes: attributes, sent: now, visible: now.Add(time.Duration(delay) * time.Second),
		system: map[string]any{"SentTimestamp": fmt.Sprint(now.UnixMilli())},
	}
	if group != "" {
		m.system["MessageGroupId"] = group
	}
	if d, ok := e["MessageDeduplicationId"]; ok {
		m.system["MessageDeduplicationId"] = d
	}
	if system, ok := e["MessageSystemAttributes"].(map[string]any); ok {
		for k, v := range system {
			m.system[k] = v.(map[string]any)["StringValue"]
		}
	}
	if fifo {
		if q.seen == nil {
			q.seen = make(map[string]*fakeMessage)
		}
		q.seen[fmt.Sprint(e["MessageDeduplicationId"])] = m
	}
	q.messages = append(q.messages, m)
	return map[string]any{"MessageId": m.id, "MD5OfMessageBody": sum(body)}, ""
}

// tooLarge reports whether a message is larger than its queue allows.
func (q *fakeQueue) tooLarge(body string, attributes map[string]any) bool {
	most, err := strconv.Atoi(q.attributes["MaximumMessageSize"])
	size := len(body)
	for name, v := range attributes {
		a, _ := v.(map[string]any)
		kind, _ := a["DataType"].(string)
		value, _ := a["StringValue"].(string)
		size += len(name) + len(kind) + len(value)
	}
	return err == nil && size > most
}

func sum(s string) string {
	h := md5.Sum([]byte(s)) // required by the protocol
	return hex.EncodeToString(h[:])
}

// receive waits for messages as a long poll does. Like SQS, a waiting receive does not notice that a group becomes
// free (google/go-cloud, issue 3456).
func (f *fake) receive(ctx context.Context, name string, in map[string]any) (map[string]any, string) {
	wait, _ := in["WaitTimeSeconds"].(float64)
	end := time.Now().Add(time.Duration(wait) * time.Second)
	tick := time.NewTicker(f.tick)
	defer tick.Stop()
	locked := map[any]bool{}
	for {
		f.mu.Lock()
		q := f.queues[name]
		if q == nil {
			f.mu.Unlock()
			return nil, "QueueDoesNotExist"
		}
		began := len(locked) == 0
		found := f.visible(q, in, time.Now(), locked)
		if began && len(locked) > 0 && len(found) == 0 && wait > 0 && slices.ContainsFunc(q.messages, func(m *fakeMessage) bool { return !m.visible.After(time.Now()) }) {
			f.blockedReceives++
		}
		f.mu.Unlock()
		if len(found) > 0 || !time.Now().Before(end) {
			return map[string]any{"Messages": found}, ""
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.mu.Lock()
			defer f.mu.Unlock()
			f.abandoned++
			f.abandonedReceives.Go(func() { f.abandonReceive(name, in, end) })
			return map[string]any{}, ""
		}
	}
}

// abandonReceive continues a receive whose client has gone. SQS does not notice that: until the wait is over it may
// deliver a message to nobody.
func (f *fake) abandonReceive(name string, in map[string]any, end time.Time) {
	for time.Now().Before(end) {
		<-time.After(f.tick)
		f.mu.Lock()
		q := f.queues[name]
		taken := q == nil || len(f.visible(q, in, time.Now(), map[any]bool{})) > 0
		f.mu.Unlock()
		if taken {
			return
		}
	}
}

func (f *fake) visible(q *fakeQueue, in map[string]any, now time.Time, locked map[any]bool) []any {
	f.expire(q, now)
	most, _ := in["MaxNumberOfMessages"].(float64)
	hidden, _ := in["VisibilityTimeout"].(float64)
	for _, m := range q.messages {
		if q.attributes["FifoQueue"] == "true" && m.visible.After(now) {
			locked[m.system["MessageGroupId"]] = true
		}
	}
	found := []any{}
	for _, m := range slices.Clone(q.messages) {
		if m.visible.After(now) || locked[m.system["MessageGroupId"]] || len(found) >= int(most) {
			continue
		}
		if f.redrive(q, m) {
			continue
		}
		f.seq++
		m.count++
		m.receipt, m.received, m.visible = fmt.Sprintf("receipt-%d", f.seq), now, now.Add(time.Duration(hidden)*time.Second)
		system := map[string]any{"ApproximateReceiveCount": fmt.Sprint(m.count)}
		maps.Copy(system, m.system)
		found = append(found, map[string]any{
			"MessageId": m.id, "ReceiptHandle": m.receipt, "Body": m.body, "MD5OfBody": sum(m.body), "Attributes": system, "MessageAttributes": m.attributes,
		})
	}
	return found
}

// expire deletes the messages whose retention is over, hidden and delayed ones, too.
func (f *fake) expire(q *fakeQueue, now time.Time) {
	seconds, err := strconv.Atoi(q.attributes["MessageRetentionPeriod"])
	if err != nil {
		return
	}
	before := len(q.messages)
	q.messages = slices.DeleteFunc(q.messages, func(m *fakeMessage) bool {
		return now.Sub(m.sent) >= time.Duration(seconds)*time.Second
	})
	f.expired += before - len(q.messages)
}

// redrive moves a message to the target of the RedrivePolicy when it has been received maxReceiveCount times.
func (f *fake) redrive(q *fakeQueue, m *fakeMessage) bool {
	described := api.Queue{Attributes: q.attributes}
	arn, most, ok := described.RedrivePolicy()
	target := f.queues[arn[strings.LastIndexByte(arn, ':')+1:]]
	if !ok || target == nil || m.count < most {
		return false
	}
	q.messages = slices.DeleteFunc(q.messages, func(other *fakeMessage) bool { return other == m })
	target.messages = append(target.messages, m)
	return true
}

// put writes a message as another program would.
func (f *fake) put(queue, uuid, body, group string, attributes map[string]any) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]any{}
	maps.Copy(all, attributes)
	if uuid != "" {
		all[UUIDAttribute] = map[string]any{"DataType": "String", "StringValue": uuid}
	}
	e := map[string]any{"MessageBody": body, "MessageAttributes": all}
	if group != "" {
		e["MessageGroupId"], e["MessageDeduplicationId"] = group, "d-"+uuid
	}
	out, code := f.send(queue, f.queues[queue], e, time.Now())
	if code != "" {
		panic(code)
	}
	return out["MessageId"].(string)
}

// messagesIn returns the messages of a queue.
func (f *fake) messagesIn(queue string) []fakeMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []fakeMessage
	if q := f.queues[queue]; q != nil {
		for _, m := range q.messages {
			all = append(all, *m)
		}
	}
	return all
}

func (f *fake) count(action string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[action]
}

func (f *fake) setFault(fault func(action, queue string, in map[string]any) *failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *fake) setEntryFault(entry func(action, queue string, e map[string]any) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entry = entry
}

// state returns the state in StateAttribute.
func (m *fakeMessage) state(t *testing.T, queue string) redeliver.State {
	t.Helper()
	a, ok := m.attributes[StateAttribute].(map[string]any)
	if !ok {
		t.Fatalf("%s has no state of redeliver's", m.id)
	}
	c, ok := wire.Unpack(a["StringValue"].(string))
	if !ok {
		t.Fatalf("no state: %v", a["StringValue"])
	}
	st, findings := redeliver.ParseHeaders(queue, c.Headers)
	if len(findings) > 0 {
		t.Fatal(findings)
	}
	return st
}

var errReset = errors.New("connection reset by peer")
