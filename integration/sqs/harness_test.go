package sqs_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// features are those of standard queues.
var features = adaptertest.Features{BinaryHeaders: true, CountsCrashes: true, ForeignHeaders: true, Refuse: true, KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, NoHeadOfLineBlocking: true, GroupPause: true}

// hidden is the visibility timeout in the kit. With 5 s, messages of a living process came back on a machine that
// stalled.
const hidden = 12 * time.Second

// kitKey signs redeliver's state in the kit. A producer without it cannot forge one.
var kitKey = []byte("the key of the kit's services")

// harness is adapters/sqs on one server for the conformance kit. Its own client is the bare SDK.
type harness struct {
	endpoint string
	fifo     bool
	api      *awssqs.Client
	seq      atomic.Int64
	refused  sync.Map // names of queues that refuse messages: a Place
	limits   sync.Map // size limits of queues by name, because ElasticMQ ignores MaximumMessageSize
	key      []byte   // signs redeliver's state; nil for no signature
}

func harnessOn(endpoint string, fifo bool) *harness {
	api := awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
	return &harness{endpoint: endpoint, fifo: fifo, api: api, key: kitKey}
}

func newHarness(t *testing.T, endpoint string, fifo bool) adaptertest.Harness {
	t.Helper()
	h := harnessOn(endpoint, fifo)
	a := adaptertest.Harness{
		Name: "SQS", Features: features, MaxCrashesBeside: 15, MaxHeaders: 9,
		Origin: h.origin, Open: h.open, Consume: h.consume(), ConsumeBatch: h.consumeBatch, Put: h.put, PutRetries: h.putBack, DeadLetters: h.dead, Received: h.seen, Refuse: h.refuse,
	}
	a.Oversized = map[adaptertest.Place]func(testing.TB, string, string) adaptertest.Message{adaptertest.Levels: h.oversized, adaptertest.DLQ: h.tooLargeForDLQ}
	a.SplitsDeadLetters, a.ForgeHeaders = true, forged
	a.DLQTopic = func(origin, _ string) (topic, reader string) {
		return h.beside(origin, "-dlq"), h.beside(origin, "-dlq")
	}
	if fifo {
		a.Name, a.Features, a.KeepsPlaces = "SQS FIFO", fifoFeatures, true
	}
	return a
}

func (h *harness) beside(queue, suffix string) string {
	if h.fifo {
		return strings.TrimSuffix(queue, ".fifo") + suffix + ".fifo"
	}
	return queue + suffix
}

// placeOf returns the queue of notes beside a FIFO queue.
func placeOf(queue string) string { return strings.TrimSuffix(queue, ".fifo") + "-place" }

func (h *harness) origin(t testing.TB, _ int) (string, []string) {
	t.Helper()
	name := "kit-" + strings.ToLower(rand.Text()[:12])
	if h.fifo {
		name += ".fifo"
	}
	h.createQueue(t, name)
	t.Cleanup(func() {
		for _, q := range []string{name, h.beside(name, "-dlq"), h.beside(name, "-suspects"), placeOf(name)} {
			if out, err := h.api.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &q}); err == nil {
				_, _ = h.api.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
			}
		}
	})
	return name, []string{name}
}

func (h *harness) createQueue(t testing.TB, name string) {
	t.Helper()
	attributes := map[string]string{}
	if h.fifo {
		attributes["FifoQueue"] = "true"
	}
	if _, err := h.api.CreateQueue(context.Background(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes}); err != nil {
		t.Fatal(err)
	}
}

// oversized makes a message without room for redeliver's state.
func (h *harness) oversized(t testing.TB, queue, _ string) adaptertest.Message {
	t.Helper()
	url := h.url(t, queue)
	out, err := h.api.GetQueueAttributes(t.Context(), &awssqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameMaximumMessageSize}})
	if err != nil {
		t.Fatal(err)
	}
	limit := 256 << 10 // for a server that does not report the attribute
	if text, ok := out.Attributes["MaximumMessageSize"]; ok {
		if limit, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return adaptertest.Message{Body: bytes.Repeat([]byte("x"), limit-250)}
}

// tooLargeForDLQ lowers the limit of the DLQ, as its owner may at any time.
func (h *harness) tooLargeForDLQ(_ testing.TB, _, group string) adaptertest.Message {
	const limit = 128 << 10
	h.limits.Store(h.beside(group, "-dlq"), limit)
	return adaptertest.Message{Body: bytes.Repeat([]byte("x"), limit*3/2)}
}

// forged returns redeliver's own attribute without a signature.
func forged(st redeliver.State) []adaptertest.Header {
	return []adaptertest.Header{{Name: sqs.StateAttribute, Value: []byte(stateText(driver.AppendStateHeaders(st, nil)))}}
}

// stateText encodes redeliver's headers in one attribute, as adapters/sqs documents it.
func stateText(headers []driver.Header) string {
	fields := make(map[string]string)
	for _, header := range headers {
		fields[strings.TrimPrefix(header.Name, redeliver.HeaderPrefix)] = header.Value
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err) // a map of strings never fails
	}
	return string(raw)
}

// sign signs a state for a body.
func (h *harness) sign(place, state, body string) string {
	fields := strings.TrimSuffix(state, "}")
	digest := sha256.Sum256([]byte(body))
	mac := hmac.New(sha256.New, h.key)
	mac.Write(digest[:])
	mac.Write([]byte(place + "\x00" + fields))
	return fields + `,"mac":"` + base64.StdEncoding.EncodeToString(mac.Sum(nil)) + `"}`
}

// isOurs reports whether a state was signed for a body.
func (h *harness) isOurs(state, body string) bool {
	mac := strings.LastIndex(state, `,"mac":"`)
	if h.key == nil || mac < 0 {
		return h.key == nil
	}
	return h.sign("waiting", state[:mac]+"}", body) == state || h.sign("dead letter", state[:mac]+"}", body) == state
}

func (h *harness) url(t testing.TB, queue string) string {
	t.Helper()
	out, err := h.api.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatalf("queue %s: %v", queue, err)
	}
	return *out.QueueUrl
}

// connections is shared by all services and clients. http.DefaultTransport keeps two connections for each host, and
// would dial for nearly every request of these tests. ElasticMQ closes idle connections after a minute; the timeout
// is shorter, because a request that meets the end fails.
var connections = &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 50 * time.Second}

// cuttableTransport is the connection of one service to the server. It can be cut, and refuses requests as the
// harness says.
type cuttableTransport struct {
	h    *harness
	cut  chan struct{}
	once sync.Once

	mu sync.Mutex
	// held has the queue URLs by the receipt handles of messages that the service received and did not finish. It is
	// nil for a runner of a DLQ, whose short leases others wait for.
	held map[string]string
}

func newCuttableTransport(h *harness) *cuttableTransport {
	return &cuttableTransport{h: h, cut: make(chan struct{}), held: map[string]string{}}
}

var errCut = errors.New("the connection is cut")

func (w *cuttableTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-w.cut:
		return nil, errCut
	default:
	}
	sent, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(sent))
	if status, text := w.h.refuses(req); status != 0 {
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Request: req, Body: io.NopCloser(strings.NewReader(text)),
		}, nil
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(req.Context()))
	defer context.AfterFunc(req.Context(), func() { cancel(context.Cause(req.Context())) })()
	type answer struct {
		resp *http.Response
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		resp, err := connections.RoundTrip(req.WithContext(ctx))
		if err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			resp.Body = io.NopCloser(bytes.NewReader(body))
			w.follow(req, sent, body)
		}
		select {
		case <-w.cut: // the answer is not read
			w.release()
		default:
		}
		cancel(nil)
		answered <- answer{resp, err}
	}()
	select {
	case a := <-answered:
		select {
		case <-w.cut:
			return nil, errCut
		default:
			return a.resp, a.err
		}
	case <-w.cut:
		// A receive continues even if the service cancels it because of errCut, because the server may still deliver
		// messages. release then makes them visible.
		if w.held == nil || !isReceive(req) {
			cancel(errCut)
		}
		return nil, errCut
	}
}

func isReceive(req *http.Request) bool {
	return strings.HasSuffix(req.Header.Get("X-Amz-Target"), ".ReceiveMessage")
}

// follow records the receipt handles of a receive, and removes those of a request that deletes, gives back, or hides
// messages for longer than the visibility timeout.
func (w *cuttableTransport) follow(req *http.Request, sent, answer []byte) {
	type entry struct {
		Receipt string `json:"ReceiptHandle"`
		Seconds int    `json:"VisibilityTimeout"`
	}
	var in struct {
		URL     string  `json:"QueueUrl"`
		Entries []entry `json:"Entries"`
		entry
	}
	_ = json.Unmarshal(sent, &in)
	action := req.Header.Get("X-Amz-Target")
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held == nil {
		return
	}
	switch {
	case isReceive(req):
		var out struct {
			Messages []entry `json:"Messages"`
		}
		_ = json.Unmarshal(answer, &out)
		for _, m := range out.Messages {
			w.held[m.Receipt] = in.URL
		}
	case strings.Contains(action, ".DeleteMessage"), strings.Contains(action, ".ChangeMessageVisibility"):
		for _, e := range append(in.Entries, in.entry) {
			if e.Seconds == 0 || e.Seconds > int(hidden/time.Second) {
				delete(w.held, e.Receipt)
			}
		}
	}
}

// release ends the visibility timeout of a killed service's messages, as time would.
func (w *cuttableTransport) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for receipt, url := range w.held {
		// An error means that the message is deleted or another process has it.
		_, _ = w.h.api.ChangeMessageVisibility(context.Background(), &awssqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &receipt})
	}
	clear(w.held)
}

// refuses returns SQS's error for a request that writes to a refused place, or a message that is too large.
func (h *harness) refuses(req *http.Request) (status int, text string) {
	action := req.Header.Get("X-Amz-Target")
	sends := strings.HasSuffix(action, ".SendMessageBatch")
	hides := strings.HasSuffix(action, ".ChangeMessageVisibilityBatch")
	if !sends && !hides {
		return 0, ""
	}
	body, _ := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	var in struct {
		URL     string `json:"QueueUrl"`
		Entries []struct {
			MessageBody       string `json:"MessageBody"`
			MessageAttributes map[string]struct {
				StringValue string `json:"StringValue"`
			} `json:"MessageAttributes"`
		} `json:"Entries"`
	}
	_ = json.Unmarshal(body, &in)
	queue := in.URL[strings.LastIndexByte(in.URL, '/')+1:]
	if what, ok := h.refused.Load(queue); ok && (sends || what == adaptertest.Levels && h.fifo) {
		return http.StatusServiceUnavailable, `{"__type":"com.amazonaws.sqs#ServiceUnavailable","message":"not now"}`
	}
	limit, limited := h.limits.Load(queue)
	for _, e := range in.Entries {
		size := len(e.MessageBody)
		for name, a := range e.MessageAttributes {
			size += len(name) + len("String") + len(a.StringValue)
		}
		if limited && size > limit.(int) {
			return http.StatusBadRequest, fmt.Sprintf(`{"__type":"com.amazonaws.sqs#InvalidParameterValue","message":"One or more parameters are invalid. Reason: Message must be shorter than %d bytes."}`, limit)
		}
	}
	return 0, ""
}

func (h *harness) open(_ testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	w := newCuttableTransport(h)
	own := anyAWS()
	own.HTTPClient = &http.Client{Transport: w}
	own.Retryer = func() aws.Retryer { return aws.NopRetryer{} } // redeliver repeats requests itself
	c, err := sqs.Open(context.Background(), sqs.Config{
		AWS: own, Endpoint: h.endpoint, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight, NackDelay: cfg.NackDelay,
		DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, VisibilityTimeout: hidden, Marshaler: marshaler{},
		StateKeys: h.keys(),
		WaitTime:  time.Second, // Close waits for a receive that is under way
	})
	if err != nil {
		return nil, err
	}
	return service{c, w}, nil
}

func (h *harness) keys() [][]byte {
	if h.key == nil {
		return nil
	}
	return [][]byte{h.key}
}

type service struct {
	*mq.Client
	wire *cuttableTransport
}

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }

// Kill cuts the connections. The server makes the service's messages visible at once, so that no test waits for the
// visibility timeout.
func (s service) Kill() {
	s.wire.once.Do(func() {
		close(s.wire.cut)
		s.wire.release()
	})
}

// marshaler refuses the body that the kit defines as undecodable.
type marshaler struct{ sqs.DefaultMarshaler }

func (m marshaler) Unmarshal(in *types.Message) (*message.Message, error) {
	msg, err := m.DefaultMarshaler.Unmarshal(in)
	if err == nil && string(msg.Payload) == adaptertest.Undecodable {
		return nil, errors.New("no such schema")
	}
	return msg, err
}

func (h *harness) put(t testing.TB, origin string, msgs ...adaptertest.Message) {
	t.Helper()
	h.write(t, origin, msgs)
}

func (h *harness) putBack(t testing.TB, _, group string, msgs ...adaptertest.Message) {
	t.Helper()
	h.write(t, group, msgs)
}

// encoded has the parts that SQS does not accept, as adapters/sqs documents it.
type encoded struct {
	Body     string            `json:"body,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (h *harness) write(t testing.TB, queue string, msgs []adaptertest.Message) {
	t.Helper()
	url := h.url(t, queue)
	most := 10
	if slices.ContainsFunc(msgs, func(m adaptertest.Message) bool { return len(m.Body) > 10<<10 }) {
		most = 2 // large ones fit
	}
	for batch := range slices.Chunk(msgs, most) {
		in := &awssqs.SendMessageBatchInput{QueueUrl: &url}
		for i, m := range batch {
			e := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageAttributes: map[string]types.MessageAttributeValue{}}
			body, attributes := h.encode(m)
			e.MessageBody, e.MessageAttributes = &body, attributes
			if h.fifo {
				group := "none"
				if m.Key != nil {
					group = "key-" + hex.EncodeToString(m.Key)
				} else if m.ID != "" {
					group = "id-" + hex.EncodeToString([]byte(m.ID))
				}
				e.MessageGroupId, e.MessageDeduplicationId = &group, aws.String(fmt.Sprint("put-", h.seq.Add(1)))
			}
			in.Entries = append(in.Entries, e)
		}
		out, err := h.api.SendMessageBatch(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range out.Failed {
			t.Fatalf("sending to %s: %s %s", queue, aws.ToString(f.Code), aws.ToString(f.Message))
		}
	}
}

func (h *harness) encode(m adaptertest.Message) (string, map[string]types.MessageAttributeValue) {
	e := encoded{Metadata: map[string]string{}}
	attributes := map[string]types.MessageAttributeValue{}
	text := func(name, v string) {
		attributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &v}
	}
	body := string(m.Body)
	switch {
	case body == "":
		body, e.Body = " ", "empty"
	case !legal(body):
		body, e.Body = base64.StdEncoding.EncodeToString(m.Body), "base64"
	}
	if m.ID != "" {
		text(sqs.UUIDAttribute, m.ID)
	}
	for _, header := range m.Headers {
		switch {
		case len(header.Value) == 0 || !ascii(header.Name):
			e.Metadata[header.Name] = string(header.Value)
		case utf8.Valid(header.Value) && legal(string(header.Value)):
			text(header.Name, string(header.Value))
		default:
			attributes[header.Name] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: header.Value}
		}
	}
	if len(m.OwnHeaders) > 0 {
		text(sqs.StateAttribute, h.sign("waiting", stateText(m.OwnHeaders), body))
	}
	if e.Body != "" || len(e.Metadata) > 0 {
		raw, _ := json.Marshal(e)
		text(sqs.EncodedAttribute, string(raw))
	}
	return body, attributes
}

func legal(s string) bool {
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return utf8.ValidString(s)
}

func ascii(s string) bool { return !strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) }

// decode converts a message for the kit.
func (h *harness) decode(m *types.Message) adaptertest.Message {
	var e encoded
	out := adaptertest.Message{Body: []byte(aws.ToString(m.Body))}
	add := func(name string, v []byte) {
		out.Headers = append(out.Headers, adaptertest.Header{Name: name, Value: bytes.Clone(v)})
	}
	attributes := maps.Clone(m.MessageAttributes)
	if state, ok := attributes[sqs.StateAttribute]; ok && h.isOurs(aws.ToString(state.StringValue), aws.ToString(m.Body)) {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal([]byte(aws.ToString(state.StringValue)), &fields)
		for name, raw := range fields {
			var v string
			if json.Unmarshal(raw, &v) == nil && slices.Contains(driver.HeaderNames(), redeliver.HeaderPrefix+name) {
				out.OwnHeaders = append(out.OwnHeaders, driver.Header{Name: redeliver.HeaderPrefix + name, Value: v})
			}
		}
		var moved []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Value []byte `json:"value"`
		}
		_ = json.Unmarshal(fields["attributes"], &moved)
		delete(attributes, sqs.StateAttribute)
		for _, a := range moved {
			v := types.MessageAttributeValue{DataType: &a.Type, StringValue: aws.String(string(a.Value))}
			if strings.HasPrefix(a.Type, "Binary") {
				v.StringValue, v.BinaryValue = nil, a.Value
			}
			attributes[a.Name] = v
		}
	}
	for name, v := range attributes {
		switch {
		case name == sqs.UUIDAttribute:
			out.ID = aws.ToString(v.StringValue)
		case name == sqs.EncodedAttribute:
			_ = json.Unmarshal([]byte(aws.ToString(v.StringValue)), &e)
		case v.BinaryValue != nil:
			add(name, v.BinaryValue)
		default:
			add(name, []byte(aws.ToString(v.StringValue)))
		}
	}
	for name, v := range e.Metadata {
		add(name, []byte(v))
	}
	switch e.Body {
	case "empty":
		out.Body = []byte{}
	case "base64":
		out.Body, _ = base64.StdEncoding.DecodeString(string(out.Body))
	}
	if key, ok := strings.CutPrefix(m.Attributes["MessageGroupId"], "key-"); ok && h.fifo {
		out.Key, _ = hex.DecodeString(key)
		if out.Key == nil {
			out.Key = []byte{}
		}
	}
	slices.SortFunc(out.Headers, func(a, b adaptertest.Header) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (h *harness) seen(msg *message.Message) adaptertest.Message {
	return h.decode(sqs.MessageFromContext(msg.Context()))
}

// dead reads the DLQ and gives back all messages. Those of a lost answer become visible again in time.
func (h *harness) dead(t testing.TB, _, group string, n int) []adaptertest.Message {
	t.Helper()
	url := h.url(t, h.beside(group, "-dlq"))
	type dead struct {
		adaptertest.Message
		part    string
		receipt *string
	}
	found := map[string]dead{}
	for began := time.Now(); time.Since(began) < adaptertest.Timeout; {
		in := &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, VisibilityTimeout: int32(hidden / time.Second),
			MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		}
		if len(found) < n {
			in.WaitTimeSeconds = 1
		}
		out, err := h.api.ReceiveMessage(context.Background(), in)
		if err != nil {
			t.Fatalf("reading the DLQ: %v", err)
		}
		before := len(found)
		for _, m := range out.Messages {
			var state struct {
				Part string `json:"part"`
			}
			_ = json.Unmarshal([]byte(aws.ToString(m.MessageAttributes[sqs.StateAttribute].StringValue)), &state)
			found[*m.MessageId] = dead{h.decode(&m), state.Part, m.ReceiptHandle}
		}
		if len(found) == before && len(found) >= n { // only known messages, or none
			break
		}
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b dead) int { return strings.Compare(a.part, b.part) })
	msgs := make([]adaptertest.Message, len(all))
	for i, d := range all {
		msgs[i] = d.Message
	}
	for batch := range slices.Chunk(all, 10) {
		in := &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url}
		for i, d := range batch {
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: d.receipt})
		}
		// An entry that fails becomes visible again.
		_, _ = h.api.ChangeMessageVisibilityBatch(context.Background(), in)
	}
	return msgs
}

// refuse makes the server unavailable for copies that wait, or on FIFO queues for longer hiding and notes, and for copies
// to the DLQ.
func (h *harness) refuse(_ testing.TB, _, group string, what adaptertest.Place) func() {
	queue := group
	if what == adaptertest.DLQ {
		queue = h.beside(group, "-dlq")
	}
	queues := []string{queue}
	if h.fifo && what == adaptertest.Levels {
		queues = append(queues, placeOf(queue))
	}
	for _, q := range queues {
		h.refused.Store(q, what)
	}
	return func() {
		for _, q := range queues {
			h.refused.Delete(q)
		}
	}
}
