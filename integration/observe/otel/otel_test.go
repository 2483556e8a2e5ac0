// Package otel_test proves on real brokers that the chain of links of observe/otel is whole:
// what names an attempt travels with its message, into the DLQ and back.
package otel_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/otel"
)

const maxWait = time.Minute

// publisher is the span that publishes the message, and its id.
const publisher, publisherID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "b7ad6b7169203331"

var errDeclined = errors.New("card declined")

// service is a client of one broker.
type service struct {
	pub   message.Publisher
	sub   message.Subscriber
	dead  func(context.Context) (deadletter.Queue, error)
	close func(context.Context) error
}

func policy() redeliver.Policy {
	return redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Second)}
}

func onKafka(t *testing.T, topic string, tr observe.Tracer) service {
	t.Helper()
	addrs := brokers.RequireKafka(t)
	cl, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	kafkatest.MakeTopic(t, admin, 1, nil, topic)
	c, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", Policy: policy(), Tracer: tr})
	if err != nil {
		t.Fatal(err)
	}
	return service{pub: c.Publisher(), sub: c.Subscriber(), close: c.Close, dead: func(ctx context.Context) (deadletter.Queue, error) {
		return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: topic})
	}}
}

func onRabbitMQ(t *testing.T, topic string, tr observe.Tracer) service {
	t.Helper()
	c, err := amqp.Open(t.Context(), amqp.Config{URLs: []string{brokers.RequireRabbitMQ(t).URL()}, Policy: policy(), Tracer: tr})
	if err != nil {
		t.Fatal(err)
	}
	return service{pub: c.Publisher(), sub: c.Subscriber(), close: c.Close, dead: func(ctx context.Context) (deadletter.Queue, error) {
		return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: topic})
	}}
}

func onSQS(t *testing.T, topic string, tr observe.Tracer) service {
	t.Helper()
	c, err := sqs.Open(t.Context(), sqs.Config{
		AWS:      &aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")},
		Endpoint: brokers.RequireSQS(t), Policy: policy(), Tracer: tr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return service{pub: c.Publisher(), sub: c.Subscriber(), close: c.Close, dead: func(ctx context.Context) (deadletter.Queue, error) {
		return c.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: topic})
	}}
}

// ended is a span processor that hands on what ends.
type ended chan trace.ReadOnlySpan

func (ended) OnStart(context.Context, trace.ReadWriteSpan) {}
func (e ended) OnEnd(s trace.ReadOnlySpan)                 { e <- s }
func (ended) Shutdown(context.Context) error               { return nil }
func (ended) ForceFlush(context.Context) error             { return nil }

// next is the next span that ends.
func (e ended) next(t *testing.T) trace.ReadOnlySpan {
	t.Helper()
	select {
	case s := <-e:
		return s
	case <-time.After(maxWait):
		t.Fatalf("no span has ended within %s", maxWait)
		return nil
	}
}

// A message with three attempts that ends in the DLQ, and is replayed: each run is linked
// to the one before, and all of them to the span that published the message.
func TestTheChainOfLinksIsWhole(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		system string
		open   func(*testing.T, string, observe.Tracer) service
	}{{"kafka", onKafka}, {"rabbitmq", onRabbitMQ}, {"aws_sqs", onSQS}} {
		t.Run(c.system, func(t *testing.T) {
			t.Parallel()
			chain(t, c.system, c.open)
		})
	}
}

func chain(t *testing.T, system string, open func(*testing.T, string, observe.Tracer) service) {
	t.Helper()
	topic := "traced-" + strings.ToLower(rand.Text()[:8])
	spans := make(ended, 100)
	tr, err := otel.NewTracer(otel.TracerConfig{
		System: system, TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(spans)), Propagator: propagation.TraceContext{},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, topic, tr)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), maxWait)
		defer cancel()
		if err := s.close(ctx); err != nil {
			t.Error(err)
		}
	}()
	messages, err := s.sub.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	go work(messages)

	msg := message.NewMessage("o-1", []byte("order"))
	msg.Metadata.Set("traceparent", publisher)
	if err := s.pub.Publish(topic, msg); err != nil {
		t.Fatal(err)
	}
	previous := ""
	for attempt := 1; attempt <= 3; attempt++ {
		previous = linked(t, spans.next(t), attempt, previous)
	}
	if dead := spans.next(t); dead.Parent().SpanID().String() != previous || dead.Status().Code != codes.Error || !strings.HasPrefix(dead.Name(), "dead_letter "+topic) {
		t.Errorf("the dead-letter span %q is a child of %s, its status %s; want %s and Error", dead.Name(), dead.Parent().SpanID(), dead.Status().Code, previous)
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	q, err := s.dead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if task, err := deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann@ops", Why: "the bank is back"}); err != nil || task.Counts.Replayed != 1 {
		t.Fatalf("replayed %+v: %v", task.Counts, err)
	}
	linked(t, spans.next(t), 1, previous)
}

// work handles messages: each fails until it is replayed.
func work(messages <-chan *message.Message) {
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		if st, _ := redeliver.FromContext(msg.Context()); st.Replays > 0 {
			return nil, nil
		}
		return nil, errDeclined
	})
	for msg := range messages {
		if _, err := handle(msg); err != nil {
			msg.Nack()
		} else {
			msg.Ack()
		}
	}
}

// linked fails the test where a span is not of this attempt, or not linked as it should be.
// It returns its id.
func linked(t *testing.T, s trace.ReadOnlySpan, attempt int, previous string) string {
	t.Helper()
	said := map[string]string{}
	for _, kv := range s.Attributes() {
		said[string(kv.Key)] = kv.Value.String()
	}
	links := map[string]string{}
	for _, l := range s.Links() {
		for _, kv := range l.Attributes {
			links[kv.Value.String()] = l.SpanContext.SpanID().String()
		}
	}
	if said["redeliver.attempt"] != string(rune('0'+attempt)) || links["published"] != publisherID || links["previous"] != previous {
		t.Errorf("%q says it is attempt %s and is linked to %v; want attempt %d, after %q", s.Name(), said["redeliver.attempt"], links, attempt, previous)
	}
	return s.SpanContext().SpanID().String()
}
