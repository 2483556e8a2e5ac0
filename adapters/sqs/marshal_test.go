package sqs

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
)

// anyText returns text that contains everything that SQS refuses, also bytes that are not UTF-8.
func anyText(t *rapid.T, label string) string {
	if rapid.IntRange(0, 3).Draw(t, "bytes") == 0 {
		return string(rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, label))
	}
	return rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0, 1, 0x1f, 0x7f, 0xfffe, 0xffff, 0x10ffff, '"', '\\', '<', '&', 'é', '\n'}))).Draw(t, label)
}

// SQS accepts every message that is published, and the handler gets the same message.
func TestMarshalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := message.NewMessage("u"+anyText(t, "uuid"), rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload"))
		if rapid.Bool().Draw(t, "text") {
			msg.Payload = []byte(anyText(t, "text payload"))
		}
		names := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_.-]{1,12}`), rapid.Just(StateAttribute), rapid.Just(EncodedAttribute), rapid.Just("aws.x"), rapid.Just("a b"),
			rapid.Custom(func(t *rapid.T) string { return anyText(t, "name") }))
		for _, name := range rapid.SliceOfN(names, 0, 15).Draw(t, "names") {
			if name != UUIDAttribute {
				msg.Metadata[name] = anyText(t, "value")
			}
		}
		wantMarshalRoundTrip(t, msg)
	})
	wantMarshalRoundTrip(t, message.NewMessage("u\xff", []byte("nothing else is encoded")))
}

// wantMarshalRoundTrip fails the test unless SQS accepts a message, and delivers it as it was.
func wantMarshalRoundTrip(t rapid.TB, msg *message.Message) {
	t.Helper()
	body, attributes, err := DefaultMarshaler{}.Marshal("orders", msg)
	if err != nil {
		t.Fatal(err)
	}
	if body == "" || !wire.IsValidText(body) || len(attributes) > wire.MaxAttributes {
		t.Fatalf("body %q, %d attributes", body, len(attributes))
	}
	for name, v := range attributes {
		if aws.ToString(v.StringValue) == "" || !wire.IsValidText(*v.StringValue) || name != UUIDAttribute && name != EncodedAttribute && !wire.IsMetadataName(name) {
			t.Fatalf("SQS refuses the attribute %q: %q", name, aws.ToString(v.StringValue))
		}
	}
	back, err := DefaultMarshaler{}.Unmarshal(&types.Message{MessageId: aws.String("m"), Body: &body, MessageAttributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	if back.UUID != msg.UUID || string(back.Payload) != string(msg.Payload) || len(back.Metadata) != len(msg.Metadata) {
		t.Fatalf("%+v came back as %+v", msg, back)
	}
	for name, v := range msg.Metadata {
		if back.Metadata[name] != v {
			t.Fatalf("metadata %q is %q, want %q", name, back.Metadata[name], v)
		}
	}
}

func TestUnmarshalForeignMessages(t *testing.T) {
	m := types.Message{MessageId: aws.String("m-1"), Body: aws.String("v"), MessageAttributes: map[string]types.MessageAttributeValue{
		"n":              {DataType: aws.String("Number"), StringValue: aws.String("4.5")},
		"b":              {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}},
		EncodedAttribute: wire.TextAttribute("not ours"),
	}}
	msg, err := DefaultMarshaler{}.Unmarshal(&m)
	if err != nil || msg.UUID != "m-1" || msg.Metadata["n"] != "4.5" || msg.Metadata["b"] != "\x01\x02" || msg.Metadata[EncodedAttribute] != "not ours" {
		t.Errorf("got %+v, %v", msg, err)
	}
	for _, bad := range []string{`{"body":"base64"}`, `{"body":"gzip"}`} {
		m.MessageAttributes[EncodedAttribute] = wire.TextAttribute(bad)
		m.Body = aws.String("***")
		if _, err := (DefaultMarshaler{}).Unmarshal(&m); err == nil {
			t.Errorf("%s was decoded with a body of another form", bad)
		}
	}
}
