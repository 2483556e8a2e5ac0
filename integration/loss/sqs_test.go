package loss

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/integration/sqs/proxy"
)

// sqsSystem is the suite's view of SQS, through the bare SDK. The consumers reach the server through a proxy that fails
// as SQS does. The suite itself does not use the proxy. SQS is never restarted, so a restart is a time in which every
// request fails.
type sqsSystem struct {
	proxy *proxy.Proxy
	api   *awssqs.Client
	queue string
	url   string
	list  []deadLetter    // taken from the DLQ
	taken map[string]bool // by message id

	mu    sync.Mutex
	doubt []*proxy.Active // rules with ambiguous answers: the request may have been executed
}

// newSQS prepares a queue.
func newSQS(t *testing.T, endpoint, queue string, seed uint64) *sqsSystem {
	t.Helper()
	p, err := proxy.Start(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.Seed(seed)
	s := &sqsSystem{
		proxy: p, taken: make(map[string]bool), queue: fmt.Sprintf("%s-%d", queue, time.Now().UnixNano()),
		api: awssqs.NewFromConfig(brokerstate.AWS(), func(o *awssqs.Options) { o.BaseEndpoint = aws.String(endpoint) }),
	}
	out, err := s.api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(s.queue)})
	if err != nil {
		t.Fatal(err)
	}
	s.url = *out.QueueUrl
	t.Cleanup(func() {
		if wrong := p.Violations(); len(wrong) > 0 {
			t.Errorf("SQS would not have taken:%s", few(wrong))
		}
		for _, url := range []string{s.url, s.url + "-dlq", s.url + "-suspects"} {
			_, _ = s.api.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: aws.String(url)}) // the server is shared
		}
	})
	return s
}

// badDays makes a few of the consumers' requests fail, all the time, in every way that SQS knows.
func (s *sqsSystem) badDays() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fault, chance := range map[proxy.Fault]float64{
		proxy.ServerError: 0.01, proxy.Throttled: 0.01, proxy.Cut: 0.005, proxy.Unread: 0.005, proxy.Partial: 0.02, proxy.FalseFailure: 0.005,
	} {
		rule := s.proxy.Add(proxy.Rule{Fault: fault, Chance: chance})
		if fault == proxy.Unread || fault == proxy.FalseFailure {
			s.doubt = append(s.doubt, rule)
		}
	}
}

// doubts returns the number of ambiguous answers.
func (s *sqsSystem) doubts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, rule := range s.doubt {
		n += rule.Met()
	}
	return n
}

func (s *sqsSystem) consumer() consumerConfig {
	return consumerConfig{Broker: "sqs", Addrs: []string{s.proxy.URL()}, Topic: s.queue}
}

// write sends ten messages at a time, and sends those again that an answer names as failed.
func (s *sqsSystem) write(ctx context.Context, items []*item) error {
	for len(items) > 0 {
		n := min(10, len(items))
		in := &awssqs.SendMessageBatchInput{QueueUrl: &s.url}
		for i, it := range items[:n] {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{
				Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(base64.StdEncoding.EncodeToString(it.value)), MessageAttributes: sqsAttributes(it),
			})
		}
		out, err := s.api.SendMessageBatch(ctx, in)
		if err != nil {
			return fmt.Errorf("writing to %s: %w", s.queue, err)
		}
		if len(out.Failed) > 0 {
			return fmt.Errorf("writing to %s: %s", s.queue, aws.ToString(out.Failed[0].Message))
		}
		for _, done := range out.Successful {
			i, err := strconv.Atoi(*done.Id)
			if err != nil {
				return err
			}
			items[i].place, items[i].at = *done.MessageId, time.Now()
		}
		items = items[n:]
	}
	return nil
}

// Attributes for values that SQS cannot represent.
const (
	sqsKey    = "key"
	sqsAgain  = "twice.again"
	sqsFiller = "zz-filler" // fills up to ten attributes, the maximum of a message
	sqsNull   = "String.null"
	sqsEmpty  = "String.empty"
)

func sqsAttributes(it *item) map[string]types.MessageAttributeValue {
	value := func(kind, text string) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String(kind), StringValue: aws.String(text)}
	}
	raw := func(b []byte) types.MessageAttributeValue {
		return types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: b}
	}
	all := map[string]types.MessageAttributeValue{sqsKey: raw(it.key), sqsFiller: value("Number", "1")}
	for _, h := range it.headers {
		name := h.key
		if _, ok := all[name]; ok {
			name = sqsAgain
		}
		switch {
		case h.value == nil:
			all[name] = value(sqsNull, "null")
		case len(h.value) == 0:
			all[name] = value(sqsEmpty, "empty")
		case rabbitText(h.key):
			all[name] = value("String", string(h.value))
		default:
			all[name] = raw(h.value)
		}
	}
	return all
}

// dead takes new messages from the DLQ and remembers them. It returns all messages that ever were there.
func (s *sqsSystem) dead(ctx context.Context) ([]deadLetter, error) {
	err := brokerstate.TakeSQS(ctx, s.api, s.url+"-dlq", 2*time.Second, func(m types.Message) {
		if !s.taken[*m.MessageId] {
			s.taken[*m.MessageId] = true
			s.list = append(s.list, s.deadLetterOf(&m))
		}
	})
	return s.list, err
}

// sqsState is redeliver's attribute, as documented.
type sqsState struct {
	fields map[string]string
	inside []struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Value []byte `json:"value"`
	}
}

func parseSQSState(text string) (sqsState, error) {
	st := sqsState{fields: make(map[string]string)}
	var raw map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &raw)
	for name, v := range raw {
		if name == "attributes" {
			err = errors.Join(err, json.Unmarshal(v, &st.inside))
			continue
		}
		var s string
		err = errors.Join(err, json.Unmarshal(v, &s))
		st.fields[name] = s
	}
	if err != nil {
		return st, fmt.Errorf("the attribute redeliver is %q: %w", text, err)
	}
	return st, nil
}

func (s *sqsSystem) deadLetterOf(m *types.Message) deadLetter {
	l := deadLetter{}
	attributes := m.MessageAttributes
	st, err := parseSQSState(aws.ToString(attributes["redeliver"].StringValue))
	if err != nil {
		st.fields["unreadable"] = err.Error() // the checker reports the missing fields
	}
	l.meta = st.fields
	for _, a := range st.inside {
		v := types.MessageAttributeValue{DataType: aws.String(a.Type), BinaryValue: a.Value}
		if a.Type != "Binary" {
			v.BinaryValue, v.StringValue = nil, aws.String(string(a.Value))
		}
		attributes[a.Name] = v
	}
	delete(attributes, "redeliver")
	l.id = aws.ToString(attributes[headerID].StringValue)
	l.key = attributes[sqsKey].BinaryValue
	for _, name := range deadLetterOrder {
		if v, ok := attributes[name]; ok {
			l.headers = append(l.headers, header{name, sqsValue(name, v)})
		}
		if name == "twice" {
			l.headers = append(l.headers, header{name, sqsValue(name, attributes[sqsAgain])})
		}
		delete(attributes, name)
	}
	if l.value, err = base64.StdEncoding.DecodeString(aws.ToString(m.Body)); err != nil {
		l.value = []byte(*m.Body)
	}
	// The id is the MessageId of the first delivery if the message has no other.
	l.place = l.meta["message-id"]
	if l.place == "" {
		l.place = l.meta["id"]
	}
	filler := attributes[sqsFiller]
	for _, name := range []string{sqsKey, sqsAgain, sqsFiller} {
		delete(attributes, name)
	}
	if l.meta["origin"] != s.queue || l.meta["group"] != s.queue || aws.ToString(filler.DataType) != "Number" || len(attributes) > 0 {
		l.place = fmt.Sprintf("%s with %v, filler %s, more %v", l.place, l.meta, aws.ToString(filler.StringValue), attributes)
	}
	return l
}

// sqsValue returns an attribute's value, or a description if its type has changed.
func sqsValue(name string, v types.MessageAttributeValue) []byte {
	kind, text := aws.ToString(v.DataType), aws.ToString(v.StringValue)
	switch {
	case kind == sqsNull && text == "null":
		return nil
	case kind == sqsEmpty && text == "empty":
		return []byte{}
	case kind == "String" && rabbitText(name):
		return []byte(text)
	case kind == "Binary" && !rabbitText(name):
		return v.BinaryValue
	}
	return fmt.Appendf(nil, "%s %q %q", kind, text, v.BinaryValue)
}

func (s *sqsSystem) unsettled(ctx context.Context) (int64, string, error) {
	return brokerstate.SQS(ctx, s.api, s.url)
}

// restart makes every request of the consumers fail for a while, in various ways.
func (s *sqsSystem) restart(ctx context.Context, down time.Duration) error {
	var rules []*proxy.Active
	for _, r := range []proxy.Rule{
		{Fault: proxy.Throttled, Chance: 0.3}, {Fault: proxy.Cut, Chance: 0.3}, {Fault: proxy.ExpiredCredentials, Chance: 0.2}, {Fault: proxy.ServerError},
	} {
		rules = append(rules, s.proxy.Add(r))
	}
	ok := consumer.Pause(ctx, down) // the planned time of failure
	for _, rule := range rules {
		rule.Remove()
	}
	if !ok {
		return ctx.Err()
	}
	return nil
}

// disconnect closes the connections of all consumers.
func (s *sqsSystem) disconnect(context.Context) error {
	s.proxy.CutAll()
	return nil
}
