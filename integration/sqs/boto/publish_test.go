//go:build prove

package boto_test

import (
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/mq"
)

// open opens a client that reads nothing.
func (b *fixture) open(cfg sqs.Config) *mq.Client {
	b.Helper()
	client, err := sqs.Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := client.Close(b.Context()); err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
	})
	return client
}

// boto3 reads the published messages.
func TestPublishedMessagesAreReadByBoto3(t *testing.T) {
	for _, kind := range []string{standard, fifo} {
		t.Run("queue"+kind, func(t *testing.T) {
			on(t, kind, func(t *testing.T, b *fixture) {
				cfg := b.config(policy)
				cfg.GroupID = func(_ string, msg *message.Message) string { return "of-" + msg.Metadata["a"] }
				client := b.open(cfg)
				for _, body := range bodies() {
					msg := message.NewMessage(watermill.NewUUID(), []byte(body))
					msg.Metadata = message.Metadata{"a": "b", "c.d": "é <&>\n"}
					if err := client.Publisher().Publish(b.queue, msg); err != nil {
						t.Fatal(err)
					}
					got := b.peer.Take(t, b.queue, 1)[0]
					want := wire{Body: body, Attributes: attributes{"a": str("b"), "c.d": str("é <&>\n"), sqs.UUIDAttribute: str(msg.UUID)}, Group: "of-b"}
					if kind == fifo {
						if got.Dedup != msg.UUID {
							t.Errorf("the deduplication id is %q, want the UUID %q", got.Dedup, msg.UUID)
						}
					}
					wantSame(t, "what was published", got, want)
				}
				b.events.NoProblems(b.T)
			}, elasticMQ(t), moto(t))
		})
	}
}

// Content that SQS does not accept travels encoded, and the handler gets it unchanged at every attempt.
func TestContentThatSQSRefusesIsKept(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		many := message.Metadata{}
		for i := range 40 {
			many[fmt.Sprint("k", i)] = fmt.Sprint("v", i)
		}
		msgs := map[string]*message.Message{
			"an empty body":        {},
			"one space":            {Payload: []byte(" ")},
			"a control character":  {Payload: []byte("a\x00b")},
			"no text":              {Payload: every()},
			"U+FFFE":               {Payload: []byte("\ufffe")},
			"many":                 {Payload: []byte("m"), Metadata: many},
			"names":                {Payload: []byte("n"), Metadata: message.Metadata{"a b": "1", "AWS.x": "2", "grüße": "3", ".a": "4", "a..b": "5", strings.Repeat("n", 257): "6", "redeliver": "7"}},
			"values":               {Payload: []byte("v"), Metadata: message.Metadata{"empty": "", "control": "\x00\u2028😀", "ok": "x"}},
			"what looks encoded":   {Payload: []byte("IA=="), Metadata: message.Metadata{sqs.EncodedAttribute: `{"body":"base64"}`}},
			"no UUID":              {Payload: []byte("u")},
			"an unknown UUID":      {Payload: []byte("w")},
			"the UUID as metadata": {Payload: []byte("x"), Metadata: message.Metadata{sqs.UUIDAttribute: "other"}},
		}
		for name, msg := range msgs {
			out := message.NewMessage(name, msg.Payload)
			switch name {
			case "no UUID":
				out.UUID = ""
			case "an unknown UUID":
				out.UUID = "u\x00"
			}
			maps.Copy(out.Metadata, msg.Metadata)
			if err := b.client.Publisher().Publish(b.queue, out); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		b.peer.Take(t, b.beside("-dlq"), len(msgs))
		b.mu.Lock()
		defer b.mu.Unlock()
		seen := make(map[string]int)
		for _, s := range b.runs {
			name := s.uuid
			switch s.payload {
			case "u":
				name = "no UUID"
			case "w":
				name = "an unknown UUID"
			}
			seen[name]++
			msg, ok := msgs[name]
			if !ok || s.payload != string(msg.Payload) || len(s.metadata) != len(msg.Metadata) || len(msg.Metadata) > 0 && !maps.Equal(s.metadata, msg.Metadata) {
				t.Errorf("%s: attempt %d got %q with %.300q", name, s.attempt, s.payload, s.metadata)
			}
		}
		for name := range msgs {
			if seen[name] != 3 {
				t.Errorf("%s was seen %d times, want 3", name, seen[name])
			}
		}
		// Without the check for faults, because the adapter may report a UUID that it cannot write.
	}, elasticMQ(t), moto(t))
}

// A message that is too large is refused with its id, size and queue, and nothing is sent.
func TestATooLargeMessageIsRefused(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		client := b.open(b.config(policy))
		for name, msg := range map[string]*message.Message{
			"too large":               {Payload: []byte(strings.Repeat("x", b.server.limit))},
			"too large with metadata": {Payload: []byte(strings.Repeat("x", b.server.limit-100)), Metadata: message.Metadata{"a": strings.Repeat("y", 90)}},
			"too large as base64":     {Payload: []byte(strings.Repeat("\x00", b.server.limit-b.server.limit/8))},
		} {
			out := message.NewMessage("m-1", msg.Payload)
			maps.Copy(out.Metadata, msg.Metadata)
			err := client.Publisher().Publish(b.queue, out)
			if err == nil || !strings.Contains(err.Error(), b.queue) || !strings.Contains(err.Error(), "m-1") || !strings.Contains(err.Error(), fmt.Sprint(b.server.limit)) {
				t.Errorf("%s: %v: want an error with the message, the queue and the limit", name, err)
			}
		}
		if got := b.peer.TakeUpTo(t, b.queue, 1, time.Second); len(got) > 0 {
			t.Errorf("something was published nevertheless: %.100v", got)
		}
	}, elasticMQ(t), moto(t))
}

// A delayed publish arrives when it is due, and the handler sees the first attempt.
func TestADelayedPublishArrivesWhenDue(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		ran := make(chan time.Time, 10)
		b.handler = func(*message.Message) error {
			ran <- time.Now()
			return nil
		}
		b.start(b.config(policy))
		msg := message.NewMessage("m", []byte("later"))
		msg.Metadata.Set("a", "b")
		delay.Message(msg, delay.For(2300*time.Millisecond))
		begin := time.Now()
		if err := b.client.Publisher().Publish(b.queue, msg); err != nil {
			t.Fatal(err)
		}
		if waited := fidelity.Within(t, ran).Sub(begin); waited < 2300*time.Millisecond {
			t.Errorf("it ran after %v", waited)
		}
		s := b.observations()["later"][0]
		if s.attempt != 1 || s.id != "m" || s.metadata["a"] != "b" {
			t.Errorf("the handler saw attempt %d of %s with %v", s.attempt, s.id, s.metadata)
		}
		b.events.NoProblems(b.T)
	}, elasticMQ(t), moto(t))
}

// SQS cannot delay a single message of a FIFO queue.
func TestADelayedPublishToAFIFOQueueIsRefused(t *testing.T) {
	on(t, fifo, func(t *testing.T, b *fixture) {
		client := b.open(b.config(policy))
		msg := message.NewMessage("m", []byte("later"))
		delay.Message(msg, delay.For(time.Second))
		if err := client.Publisher().Publish(b.queue, msg); err == nil || !strings.Contains(err.Error(), b.queue) {
			t.Errorf("a delayed publish to a FIFO queue: %v", err)
		}
	}, elasticMQ(t))
}

// redeliver reads messages of watermill-aws, the same at every attempt, and watermill-aws reads redeliver's.
func TestRedeliverAndWatermillAWSReadEachOther(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		cfg := aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
		there := []func(*awssqs.Options){func(o *awssqs.Options) { o.BaseEndpoint = aws.String(b.server.url) }}
		pub, err := wsqs.NewPublisher(wsqs.PublisherConfig{AWSConfig: cfg, OptFns: there}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		defer pub.Close()
		out := message.NewMessage(watermill.NewUUID(), []byte("payload"))
		out.Metadata = message.Metadata{"correlation_id": "c-1", "text": "é\n<&>"}
		if err := pub.Publish(b.queue, out.Copy()); err != nil {
			t.Fatal(err)
		}
		b.start(b.config(policy))
		b.deadLetters(1)
		all := b.observations()["payload"]
		if len(all) != 3 {
			t.Errorf("it ran %d times, want 3", len(all))
		}
		for _, s := range all {
			if s.uuid != out.UUID || s.id != out.UUID || !maps.Equal(s.metadata, out.Metadata) {
				t.Errorf("attempt %d is %s, %s with %v, want %s with %v", s.attempt, s.uuid, s.id, s.metadata, out.UUID, out.Metadata)
			}
		}

		client := b.open(b.config(policy))
		// Another queue: ElasticMQ may still have a receive of the ended worker, and give it the next message.
		answers := fidelity.Unique("answers")
		b.peer.create(t, answers, nil)
		back := message.NewMessage(watermill.NewUUID(), []byte("answer"))
		back.Metadata = maps.Clone(out.Metadata)
		if err := client.Publisher().Publish(answers, back); err != nil {
			t.Fatal(err)
		}
		sub, err := wsqs.NewSubscriber(wsqs.SubscriberConfig{AWSConfig: cfg, OptFns: there}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		in, err := sub.Subscribe(t.Context(), answers)
		if err != nil {
			t.Fatal(err)
		}
		msg := fidelity.Within(t, in)
		if msg.UUID != back.UUID || string(msg.Payload) != "answer" || !maps.Equal(msg.Metadata, back.Metadata) {
			t.Errorf("watermill-aws got %s %q %v", msg.UUID, msg.Payload, msg.Metadata)
		}
		msg.Ack()
	}, elasticMQ(t))
}

// The handler's Metadata has the text of every attribute, as code for watermill-aws expects.
func TestMetadataHasTheTextOfEveryAttribute(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		b.start(b.config(redeliver.Policy{MaxRetries: redeliver.NoRetries}))
		b.peer.put(t, b.queue, wire{Body: "m", Attributes: attributes{"text": str("t"), "number": number("5"), "binary": binary(0, 0xff)}})
		b.deadLetters(1)
		got := b.observations()["m"][0].metadata
		if got["text"] != "t" || got["number"] != "5" || hex.EncodeToString([]byte(got["binary"])) != "00ff" {
			t.Errorf("the metadata is %q", got)
		}
	}, elasticMQ(t))
}
