package sqs

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
)

// messageOf returns a message from lines "type name=value"; a b before the type makes the value binary.
func messageOf(body, block string) *types.Message {
	m := &types.Message{MessageId: aws.String("id"), Body: &body, MessageAttributes: map[string]types.MessageAttributeValue{}}
	for line := range strings.SplitSeq(block, "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		name, value, _ := strings.Cut(rest, "=")
		a := types.MessageAttributeValue{DataType: aws.String(strings.TrimPrefix(kind, "b")), StringValue: &value}
		if strings.HasPrefix(kind, "b") {
			a.StringValue, a.BinaryValue = nil, []byte(value)
		}
		m.MessageAttributes[name] = a
	}
	return m
}

// A message that a handler gets from any queue can be published again and comes back the same.
func FuzzUnmarshal(f *testing.F) {
	f.Add("hello", "String a=b\nString _watermill_message_uuid=4711")
	f.Add(" ", `String _redeliver_encoded={"body":"empty","metadata":{"a":"\u0000"}}`)
	f.Add("////", `String _redeliver_encoded={"body":"base64"}`+"\nbBinary x=\xff")
	f.Add("%", `String _redeliver_encoded={"body":"base64"}`)
	f.Add("", `String _redeliver_encoded={"body":"zip"}`)
	f.Add("x", `String `+EncodedAttribute+`={"body":"base64","metadata":{"a":"b"}}`+"\nNumber n=1\nString "+UUIDAttribute+"=1")
	f.Fuzz(func(t *testing.T, body, block string) {
		msg, err := DefaultMarshaler{}.Unmarshal(messageOf(body, block))
		if err != nil {
			return
		}
		text, attributes, err := DefaultMarshaler{}.Marshal("orders", msg)
		if err != nil {
			t.Fatal(err)
		}
		if text == "" || !wire.IsValidText(text) || len(attributes) > wire.MaxAttributes {
			t.Fatalf("SQS refuses the body %q with %d attributes", text, len(attributes))
		}
		back, err := DefaultMarshaler{}.Unmarshal(&types.Message{MessageId: aws.String("other"), Body: &text, MessageAttributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		if string(back.Payload) != string(msg.Payload) || wire.IsValidText(msg.UUID) && msg.UUID != "" && back.UUID != msg.UUID {
			t.Errorf("%q, %q became %q, %q", msg.UUID, msg.Payload, back.UUID, back.Payload)
		}
		for name, value := range msg.Metadata {
			if strings.ToValidUTF8(value, "\uFFFD") != back.Metadata[strings.ToValidUTF8(name, "\uFFFD")] && valid(msg.Metadata) {
				t.Errorf("%q is %q and became %q", name, value, back.Metadata[name])
			}
		}
	})
}

// valid reports whether metadata is valid UTF-8, because JSON does not keep other bytes.
func valid(metadata map[string]string) bool {
	for name, value := range metadata {
		if strings.ToValidUTF8(name+value, "?") != name+value {
			return false
		}
	}
	return true
}

// A topic is a queue's name, URL or ARN.
func FuzzParseTopic(f *testing.F) {
	for _, topic := range []string{
		"orders", "orders.fifo", "arn:aws:sqs:eu-central-1:123456789012:orders", "arn:aws:sqs:::", "arn:aws-cn:sqs:a:b:c:d",
		"https://sqs.eu-central-1.amazonaws.com/123456789012/orders", "http://h:9324/000000000000/orders/", "http://h", "https:///x", "http://%zz/x",
	} {
		f.Add(topic)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		a := parseTopic(topic)
		if !strings.Contains(topic, a.name) && !strings.Contains(topic, "%") || a.url != "" && a.url != topic {
			t.Errorf("%q is read as %+v", topic, a)
		}
		if a.url == "" && a.region == "" && a.account == "" && a.name != topic && !strings.HasPrefix(topic, "arn:") {
			t.Errorf("%q is the name %q", topic, a.name)
		}
	})
}

// A queue's RedrivePolicy may be any JSON.
func FuzzRedrivePolicy(f *testing.F) {
	f.Add(`{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:1:dead","maxReceiveCount":"5"}`)
	f.Add(`{"maxReceiveCount":5}`)
	f.Add(`{"maxReceiveCount":5.5}`)
	f.Add(`{"maxReceiveCount":99999999999999999999}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		q := api.Queue{Attributes: map[string]string{"RedrivePolicy": text}}
		if target, maxReceives, ok := q.RedrivePolicy(); !ok && maxReceives != 0 {
			t.Errorf("%q says %d to %q", text, maxReceives, target)
		}
	})
}
