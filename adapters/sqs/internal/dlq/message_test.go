package dlq

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
)

// A replay keeps attributes of every type, the message group and the first MessageId, also after a file.
func TestReplayRestoresTheMessage(t *testing.T) {
	was := types.Message{
		Body: aws.String(" "), MessageId: aws.String("first"),
		Attributes: map[string]string{wire.GroupID: "g", wire.DedupID: "d", wire.TraceHeader: "Root=1", wire.SentTimestamp: "1700000000000"},
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text": wire.TextAttribute("t"), "n": {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
			"raw": {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 0xff}}, wire.UUIDAttribute: wire.TextAttribute("u-1"),
			wire.EncodedAttribute: wire.TextAttribute(`{"body":"empty","metadata":{"nothing":""}}`),
		},
	}
	rec := wire.Record{Native: was, CopyID: "first", FirstID: "first"}
	st := redeliver.State{ID: "u-1", Group: "orders.fifo", Origin: "orders.fifo", Attempts: 2, Reason: redeliver.ReasonExhausted, LastFailed: time.Unix(1_700_000_001, 0).UTC()}
	o := rec.DeadCopy(&st, 256<<10)
	dead := types.Message{Body: &o.Body, MessageId: aws.String("copy"), MessageAttributes: o.Attributes, Attributes: map[string]string{
		wire.GroupID: o.Group, wire.DedupID: "dead-1", wire.TraceHeader: o.Trace, wire.SentTimestamp: "1700000002000",
	}}
	q := Open(Options{Main: &api.Queue{Name: "orders.fifo", FIFO: true}, DLQ: &api.Queue{Name: "orders-dlq.fifo", FIFO: true}})
	m := q.readMessage(&dead)
	if m.ID != "u-1" || m.Position != "copy" || len(m.Body) != 0 || m.Body == nil || string(m.Key) != "g" || m.State.Attempts != 2 || m.Mismatch != "" || len(m.Headers) != 5 {
		t.Errorf("it says %+v", m)
	}
	check := func(what string, m *deadletter.Message) {
		again := recordFrom(m, m.Headers)
		got, want := again.PlainCopy(), rec.PlainCopy()
		if got.Body != want.Body || got.Group != want.Group || got.Trace != want.Trace || again.FirstID != "first" {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		for name, v := range want.Attributes {
			w := got.Attributes[name]
			if aws.ToString(w.DataType) != aws.ToString(v.DataType) || aws.ToString(w.StringValue) != aws.ToString(v.StringValue) || string(w.BinaryValue) != string(v.BinaryValue) {
				t.Errorf("%s: attribute %s is %+v, want %+v", what, name, w, v)
			}
		}
		if len(got.Attributes) != len(want.Attributes) {
			t.Errorf("%s: %d attributes, want %d", what, len(got.Attributes), len(want.Attributes))
		}
	}
	check("the replay", m)
	fromFile := *m
	fromFile.Native = nil
	check("read from a file", &fromFile)
}

// The properties of a dead letter may come from an edited file.
func FuzzProperties(f *testing.F) {
	f.Add("message-id=1\ngroup-id=a\nsent=1700000000000\nattribute-type/n=Number", "n", "7", "body")
	f.Add("sent=soon\nattribute-type/n=Binary", "n", "\xff", "")
	f.Add("attribute-type/=", "", "", "\x00")
	f.Fuzz(func(t *testing.T, properties, name, value, body string) {
		m := &deadletter.Message{ID: "1", Headers: []deadletter.Header{{Name: name, Value: []byte(value)}}, Body: []byte(body)}
		for line := range strings.SplitSeq(properties, "\n") {
			key, text, _ := strings.Cut(line, "=")
			m.Properties = append(m.Properties, deadletter.Header{Name: key, Value: []byte(text)})
		}
		r := recordFrom(m, m.Headers)
		if r.Native.Body == nil || *r.Native.Body == "" || !wire.IsValidText(*r.Native.Body) {
			t.Errorf("SQS refuses the body %v", r.Native.Body)
		}
		if ms := r.Attributes[wire.SentTimestamp]; ms != "" && strings.Trim(ms, "+-0123456789") != "" {
			t.Errorf("it was sent at %q", ms)
		}
	})
}
