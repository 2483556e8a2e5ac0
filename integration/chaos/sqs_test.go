//go:build prove

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
)

// sqsSystem is the suite's view of an ElasticMQ, through the bare SDK.
type sqsSystem struct {
	server *brokers.SQSServer
	gate   *gate
	api    *awssqs.Client // of the writer, through the gate
	direct *awssqs.Client
	urls   map[string]string // by load

	writing     sync.WaitGroup
	slots       chan struct{}           // bounds concurrent writes, because an overloaded server answers no request
	deadLetters map[string]history.Line // by message id in the DLQ; dead letters are read once and then kept
}

// sqsVisibility is when the messages of a dead consumer come back. On a machine that pauses for six tenths of it,
// messages come back that are still in hand, and no fault explains that.
const sqsVisibility = 18 * time.Second

func newSQSSystem(t *testing.T, loads []history.Load) *sqsSystem {
	t.Helper()
	s := &sqsSystem{server: brokers.OwnSQS(t, brokers.SQSOptions{Heap: "384m", StartTimeout: startTimeout}), slots: make(chan struct{}, 8), urls: make(map[string]string), deadLetters: make(map[string]history.Line)}
	s.gate = newGate(t, "sqs", strings.TrimPrefix(s.server.URL(), "http://"))
	// The writer does not retry, because a message that was sent twice would be two messages.
	s.api = awssqs.NewFromConfig(brokerstate.AWS(), func(o *awssqs.Options) {
		o.BaseEndpoint, o.RetryMaxAttempts = aws.String("http://"+s.gate.address()), 1
		o.HTTPClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	})
	s.direct = awssqs.NewFromConfig(brokerstate.AWS(), func(o *awssqs.Options) { o.BaseEndpoint = aws.String(s.server.URL()) })
	for _, load := range loads {
		out, err := s.direct.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: aws.String(load.Name)})
		if err != nil {
			t.Fatal(err)
		}
		s.urls[load.Name] = *out.QueueUrl
	}
	return s
}

func (s *sqsSystem) consumer(load history.Load) consumerConfig {
	return consumerConfig{Broker: "sqs", Addrs: []string{"http://" + s.gate.address()}, Topic: load.Name}
}

func (s *sqsSystem) write(ctx context.Context, load history.Load, _ body, value []byte, confirmed func(partition int32, offset int64)) {
	s.slots <- struct{}{} // no slot is held for longer than a write takes
	s.writing.Go(func() {
		defer func() { <-s.slots }()
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		url := s.urls[load.Name]
		if _, err := s.api.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(string(value))}); err == nil {
			confirmed(0, 0)
		}
	})
}

func (s *sqsSystem) flush(context.Context) error {
	s.writing.Wait()
	return nil
}

// dead takes new messages from the DLQ and returns all messages that ever were there.
func (s *sqsSystem) dead(ctx context.Context, load history.Load) ([]history.Line, error) {
	err := brokerstate.TakeSQS(ctx, s.direct, s.urls[load.Name]+"-dlq", 5*time.Second, func(m types.Message) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(aws.ToString(m.MessageAttributes["redeliver"].StringValue)), &fields); err != nil {
			fields = map[string]any{"reason": err.Error()}
		}
		s.deadLetters[*m.MessageId] = deadLetterLine(load, []byte(*m.Body), func(name string) string {
			if v, ok := fields[name]; ok {
				return fmt.Sprint(v)
			}
			return ""
		})
	})
	return slices.Collect(maps.Values(s.deadLetters)), err
}

func (s *sqsSystem) unsettled(ctx context.Context, load history.Load) (int64, string, error) {
	return brokerstate.SQS(ctx, s.direct, s.urls[load.Name])
}

func (s *sqsSystem) lanes() []lane {
	network := lane{name: "way to the server", rest: singleRest}
	for _, x := range toxics {
		network.kinds = append(network.kinds, x.fault(1, func(int) []*gate { return []*gate{s.gate} }))
	}
	return []lane{network, {"server", []kind{
		{"node killed", 1, func(context.Context, step) (func(context.Context) error, error) {
			return s.server.Start, s.server.Kill()
		}},
		{"node frozen", 1, func(context.Context, step) (func(context.Context) error, error) {
			return func(context.Context) error { return s.server.Resume() }, s.server.Suspend()
		}},
	}, nodeRest + singleRest}}
}

// connectSQS opens the adapter.
func connectSQS(ctx context.Context, cfg consumerConfig, sink redeliver.Sink) (consumer.Client, error) {
	ac := brokerstate.AWS()
	client, err := sqs.Open(ctx, sqs.Config{
		AWS: &ac, Endpoint: cfg.Addrs[0], Policy: cfg.policy(), Sink: sink, DrainTimeout: 2 * time.Second, SendTimeout: cfg.MaxWait,
		MaxInFlight: 20, VisibilityTimeout: sqsVisibility, WaitTime: time.Second, Pollers: 2,
	})
	if err != nil {
		return consumer.Client{}, err
	}
	return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
}
