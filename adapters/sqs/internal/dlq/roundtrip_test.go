package dlq

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// anyAttribute returns an attribute of any type that SQS accepts.
func anyAttribute(t *rapid.T) types.MessageAttributeValue {
	kind := rapid.SampledFrom([]string{"String", "String.json", "Number", "Number.float", "Binary", "Binary.png"}).Draw(t, "type")
	switch kind[:6] {
	case "Number":
		return wire.Attribute(kind, fmt.Append(nil, rapid.Float64().Draw(t, "number")))
	case "Binary":
		return wire.Attribute(kind, rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "bytes"))
	default:
		return wire.Attribute(kind, []byte(rapid.StringN(1, 20, -1).Filter(wire.IsValidText).Draw(t, "text")))
	}
}

// anyMessage returns a message with up to ten attributes, as a native producer or DefaultMarshaler writes it.
func anyMessage(t *rapid.T) types.Message {
	m := types.Message{
		Body: aws.String(rapid.StringN(1, 30, -1).Filter(wire.IsValidText).Draw(t, "body")), MessageId: aws.String("first"),
		MessageAttributes: map[string]types.MessageAttributeValue{},
		Attributes:        map[string]string{wire.GroupID: "g", wire.DedupID: "d", wire.TraceHeader: "Root=1", wire.SentTimestamp: "1700000000000"},
	}
	var e wire.Encoded
	if rapid.Bool().Draw(t, "encoded") {
		m.Body = aws.String(e.EncodeBody(rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "encoded body")))
		for range rapid.IntRange(0, 3).Draw(t, "metadata") {
			e.Add("meta "+string(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "name")), string(rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value")))
		}
		if rapid.Bool().Draw(t, "uuid") {
			e.UUID = []byte{0xff, 0}
		}
	}
	e.AddTo(m.MessageAttributes)
	names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "Z", "x-1", "_y", "q.r", wire.StateAttribute, redeliver.HeaderExpires})
	for _, name := range rapid.SliceOfNDistinct(names, 0, wire.MaxAttributes-len(m.MessageAttributes), rapid.ID).Draw(t, "names") {
		m.MessageAttributes[name] = anyAttribute(t)
	}
	return m
}

// Messages with attributes of all types, also ten of them, and with any bytes in what is encoded are the same for the handler of a
// retry, in a replay and behind a file.
func TestAnyMessageIsTheSameEverywhere(t *testing.T) {
	q := Open(Options{Main: &api.Queue{Name: "orders.fifo", FIFO: true}, DLQ: &api.Queue{Name: "orders-dlq.fifo", FIFO: true}})
	rapid.Check(t, func(t *rapid.T) {
		was := anyMessage(t)
		rec := wire.Record{Native: was, CopyID: "first", FirstID: "first"}
		st := redeliver.State{ID: "first", Group: "orders.fifo", Origin: "orders.fifo", Attempts: 2, Reason: redeliver.ReasonExhausted, LastFailed: time.Unix(1_700_000_001, 0).UTC()}
		received := func(o wire.Outgoing) *types.Message {
			return &types.Message{Body: &o.Body, MessageId: aws.String("copy"), MessageAttributes: maps.Clone(o.Attributes), Attributes: map[string]string{
				wire.GroupID: o.Group, wire.DedupID: "dead-1", wire.TraceHeader: o.Trace, wire.SentTimestamp: "1700000002000",
			}}
		}
		check := func(where string, got *wire.Record) {
			t.Helper()
			if aws.ToString(got.Body) != *was.Body || got.FirstID != "first" || len(got.MessageAttributes) != len(was.MessageAttributes) {
				t.Fatalf("%s: body %q of %s with %d attributes %v, want %q and %v", where, aws.ToString(got.Body), got.FirstID, len(got.MessageAttributes), got.MessageAttributes, *was.Body, was.MessageAttributes)
			}
			for name, v := range was.MessageAttributes {
				if g := got.MessageAttributes[name]; !reflect.DeepEqual(g, v) && name != wire.EncodedAttribute {
					t.Fatalf("%s: attribute %s is %v, want %v", where, name, g, v)
				}
			}
			g, _ := wire.EncodedOf(&got.Native)
			w, _ := wire.EncodedOf(&was)
			if g.Body != w.Body || !maps.Equal(g.AllMetadata(), w.AllMetadata()) || !bytes.Equal(g.UUID, w.UUID) || len(g.Attributes) != 0 {
				t.Fatalf("%s: %+v is encoded, want %+v", where, g, w)
			}
		}
		waiting, ok := rec.WaitingCopy(&st, 256<<10)
		retry, state := wire.NewRecord(received(waiting), "orders.fifo", statekeys.Waiting, nil)
		if !ok || state == nil {
			t.Fatalf("the waiting copy has no state")
		}
		retry.SetFirstDelivery(state, &st)
		check("in a retry", &retry)

		m := q.readMessage(received(rec.DeadCopy(&st, 256<<10)))
		check("in a replay", recordFrom(m, m.Headers))
		fromFile, err := adaptertest.ThroughFile(t.Context(), q.info, m)
		if err != nil {
			t.Fatal(err)
		}
		check("behind a file", recordFrom(fromFile, fromFile.Headers))

		// An edit that makes the body binary needs an eleventh attribute at most.
		edited := *m
		edited.Body = []byte{0xff}
		again := recordFrom(&edited, edited.Headers)
		if len(again.MessageAttributes) > wire.MaxAttributes || string(again.PublishedBody()) != "\xff" {
			t.Fatalf("edited it has %d attributes and the body %q", len(again.MessageAttributes), again.PublishedBody())
		}
		var headers, want []string
		for _, h := range m.Headers {
			want = append(want, fmt.Sprintf("%s=%s", h.Name, h.Value))
		}
		dead := q.readMessage(received(again.DeadCopy(&st, 256<<10)))
		for _, h := range dead.Headers {
			headers = append(headers, fmt.Sprintf("%s=%s", h.Name, h.Value))
		}
		if !maps.Equal(toSet(headers), toSet(want)) {
			t.Fatalf("edited it has the headers %q, want %q", headers, want)
		}
	})
}

func toSet(all []string) map[string]int {
	set := make(map[string]int)
	for _, s := range all {
		set[s]++
	}
	return set
}
