package wire

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// maxSize is the size of the largest message of most queues.
const maxSize = 256 << 10

var epoch = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// anyText returns text that contains everything that SQS refuses.
func anyText(t *rapid.T, label string) string {
	return rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0, 1, 0x1f, 0x7f, 0xfffe, 0xffff, 0x10ffff, '"', '\\', '<', '&', 'é', '\n'}))).Draw(t, label)
}

func anyState(t *rapid.T) redeliver.State {
	at := func(label string) time.Time {
		return epoch.Add(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, label)) * time.Millisecond)
	}
	return redeliver.State{
		ID: "id" + anyText(t, "id"), Group: "orders", Origin: "orders", Attempts: rapid.IntRange(0, 1000).Draw(t, "attempts"),
		Due: at("due"), FirstFailed: at("first"), LastFailed: at("last"), Error: anyText(t, "error"), ErrorType: "*errors.errorString", FirstError: "first " + anyText(t, "first error"),
		Reason: redeliver.ReasonPanic, Policy: "00ff", Source: redeliver.Source{Timestamp: at("sent")}, Replays: rapid.IntRange(0, 3).Draw(t, "replays"),
	}
}

// anyAttributes returns up to ten attributes of a user.
func anyAttributes(t *rapid.T) map[string]types.MessageAttributeValue {
	names := rapid.SampledFrom([]string{
		"a", "b", "c", "d", "e", "f", "g", "h", "zz", StateAttribute, UUIDAttribute, "redeliver-attempt", "Number.x",
	})
	all := map[string]types.MessageAttributeValue{}
	for _, name := range rapid.SliceOfNDistinct(names, 0, MaxAttributes, rapid.ID[string]).Draw(t, "names") {
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			all[name] = TextAttribute("text of " + name)
		case 1:
			all[name] = types.MessageAttributeValue{DataType: aws.String("Number.int"), StringValue: aws.String("4711")}
		default:
			all[name] = types.MessageAttributeValue{DataType: aws.String("Binary.gif"), BinaryValue: rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes")}
		}
	}
	return all
}

func sameAttributes(a, b map[string]types.MessageAttributeValue) bool {
	return maps.EqualFunc(a, b, func(v, w types.MessageAttributeValue) bool {
		return aws.ToString(v.DataType) == aws.ToString(w.DataType) && aws.ToString(v.StringValue) == aws.ToString(w.StringValue) && bytes.Equal(v.BinaryValue, w.BinaryValue)
	})
}

func recordOfParts(body string, attributes map[string]types.MessageAttributeValue, system map[string]string) *Record {
	m := types.Message{MessageId: aws.String("m-1"), Body: &body, MessageAttributes: maps.Clone(attributes), Attributes: system}
	r, _ := NewRecord(&m, "somewhere else", statekeys.Waiting, nil)
	return &r
}

// For any message and state, SQS accepts the copy, the next reader restores both, and the user's attributes are
// unchanged.
func TestStateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, attributes := anyState(t), anyAttributes(t)
		r := recordOfParts("body", attributes, map[string]string{TraceHeader: "Root=1", GroupID: "g", DedupID: "d-1"})
		o, ok := r.WaitingCopy(&st, maxSize)
		if !ok || len(o.Attributes) > MaxAttributes || o.Size() > maxSize || o.Trace != "Root=1" || o.Group != "g" {
			t.Fatalf("the copy has %d attributes, %d bytes, %v", len(o.Attributes), o.Size(), ok)
		}
		packed := *o.Attributes[StateAttribute].StringValue
		if !IsValidText(packed) {
			t.Fatalf("SQS refuses %q", packed)
		}
		again, _ := r.WaitingCopy(&st, maxSize)
		if *again.Attributes[StateAttribute].StringValue != packed {
			t.Fatal("packing the same state twice gives different values")
		}
		m := types.Message{MessageId: aws.String("m-2"), Body: &o.Body, MessageAttributes: o.Attributes, Attributes: map[string]string{GroupID: "g", DedupID: "ours"}}
		back, c := NewRecord(&m, "orders", statekeys.Waiting, nil)
		if c == nil {
			t.Fatalf("not trusted: %s", packed)
		}
		read, findings := driver.ParseHeaders("orders", c.Headers)
		if len(findings) > 0 {
			t.Fatal(findings)
		}
		want, _ := driver.ParseHeaders("orders", driver.AppendStateHeaders(st, nil))
		if read != want {
			t.Fatalf("read %+v, want %+v", read, want)
		}
		back.SetFirstDelivery(c, &read)
		if !sameAttributes(back.MessageAttributes, attributes) {
			t.Fatalf("attributes %v, want %v", back.MessageAttributes, attributes)
		}
		if *back.MessageId != "m-1" || back.Attributes[DedupID] != "d-1" || back.Attributes[SentTimestamp] == "" {
			t.Fatalf("its first delivery was %s, %v", *back.MessageId, back.Attributes)
		}
	})
}

// A copy stays within any limit or is not made, and the DLQ gets the message unchanged.
func TestStateShrinksToItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st, attributes := anyState(t), anyAttributes(t)
		st.Error = strings.Repeat("é", rapid.IntRange(0, 512).Draw(t, "long"))
		r := recordOfParts(strings.Repeat("x", 1000), attributes, nil)
		plain := r.PlainCopy()
		limit := plain.Size() + rapid.IntRange(0, 1500).Draw(t, "room")
		if o, ok := r.WaitingCopy(&st, limit); ok {
			c, _ := Unpack(*o.Attributes[StateAttribute].StringValue)
			read, findings := driver.ParseHeaders("orders", c.Headers)
			if o.Size() > limit || len(findings) > 0 || read.Attempts != st.Attempts || !read.Due.Equal(st.Due) || !read.FirstFailed.Equal(st.FirstFailed) || !c.isFor("orders") {
				t.Fatalf("%d of %d bytes: %+v %v", o.Size(), limit, read, findings)
			}
		}
		o := r.DeadCopy(&st, limit)
		if o.Size() > limit || o.Body != plain.Body || len(o.Attributes) > MaxAttributes {
			t.Fatalf("%d of %d bytes, %d attributes", o.Size(), limit, len(o.Attributes))
		}
		if _, ours := o.Attributes[StateAttribute]; !ours && !sameAttributes(o.Attributes, attributes) {
			t.Fatal("a dead letter without our state differs from the message")
		}
	})
}

func TestTenthAttributeTravelsInsideTheState(t *testing.T) {
	attributes := map[string]types.MessageAttributeValue{UUIDAttribute: TextAttribute("u")}
	for name := range strings.SplitSeq("abcdefgh", "") {
		attributes[name] = TextAttribute(name)
	}
	attributes["zz"] = types.MessageAttributeValue{DataType: aws.String("Binary"), BinaryValue: []byte{0, 255}}
	r := recordOfParts("v", attributes, nil)
	o, ok := r.WaitingCopy(&redeliver.State{ID: "u", Group: "orders", Origin: "orders", Attempts: 1}, 4096)
	want := `{"attempt":"1","attributes":[{"name":"zz","type":"Binary","value":"AP8="}],"group":"orders","id":"u","message-id":"m-1","origin":"orders"}`
	if got := aws.ToString(o.Attributes[StateAttribute].StringValue); !ok || got != want {
		t.Errorf("ours is\n%s, want\n%s", got, want)
	}
	if _, there := o.Attributes["zz"]; there || len(o.Attributes) != 10 {
		t.Errorf("the copy has %v", slices.Sorted(maps.Keys(o.Attributes)))
	}
}

// A state that was not written for this queue belongs to the user.
func TestForeignStateIsNotTrusted(t *testing.T) {
	for _, value := range []string{
		"", "mine", "{}", "null", "[]", `"x"`, `{"attempt":"50"}`, `{"attempt":"50","group":"orders"}`,
		`{"attempt":"50","group":"orders","origin":"mail"}`, `{"attempt":"50","group":"mail","origin":"orders"}`, `{"group":["orders"],"origin":"orders"}`,
		`{"attempt":"50","group":"orders","origin":"orders"`,
		`{"attempt":"0","group":"orders","origin":"orders","attributes":[{"name":"AWS.bad name","type":"Bogus"}]}`,
		`{"attempt":"0","group":"orders","origin":"orders","attributes":[{"name":"two..dots","type":"String"}]}`,
		`{"attempt":"0","group":"orders","origin":"orders","attributes":[{"name":"x","type":"String"}]}`,
		`{"attempt":"0","group":"orders","origin":"orders","attributes":[{"name":"x","type":"String","value":"AA=="}]}`,
	} {
		m := types.Message{MessageId: aws.String("m"), MessageAttributes: map[string]types.MessageAttributeValue{StateAttribute: TextAttribute(value), "a": TextAttribute("b")}}
		r, c := NewRecord(&m, "orders", statekeys.Waiting, nil)
		if c != nil || aws.ToString(r.MessageAttributes[StateAttribute].StringValue) != value || len(ForeignAttributes(&r.Native)) != 1 {
			t.Errorf("%s is trusted, or not reported", value)
		}
	}
}

// SQS accepts ten attributes; other servers of its protocol may accept more.
func TestManyForeignAttributesAreCountedNotListed(t *testing.T) {
	const n = 5000
	m := types.Message{MessageAttributes: make(map[string]types.MessageAttributeValue, n)}
	for i := range n {
		m.MessageAttributes["redeliver-"+strconv.Itoa(i)] = TextAttribute("lies")
	}
	found := ForeignAttributes(&m)
	if len(found) != 21 || !strings.Contains(found[len(found)-1].Problem, strconv.Itoa(n-20)) {
		t.Errorf("%d findings, the last %q; want 20, and a count of the other %d", len(found), found[len(found)-1], n-20)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(`{"attempt":"1","group":"orders","origin":"orders","id":"u","attributes":[{"name":"zz","type":"Binary","value":"AP8="}]}`)
	f.Add(`{"attempt":1,"due":null,"error":{"a":[]},"attributes":[{}]}`)
	f.Add("{\"id\":\"\\ud800\",\"group\":\"\x00\"}")
	f.Fuzz(func(t *testing.T, value string) {
		m := types.Message{MessageId: aws.String("m"), Body: aws.String("v"), MessageAttributes: map[string]types.MessageAttributeValue{StateAttribute: TextAttribute(value)}}
		r, c := NewRecord(&m, "orders", statekeys.Waiting, nil)
		if c == nil {
			if len(r.MessageAttributes) != 1 {
				t.Fatal("an untrusted value is changed")
			}
			return
		}
		st, _ := driver.ParseHeaders("orders", c.Headers)
		r.SetFirstDelivery(c, &st)
		st.Group, st.Origin = "orders", "orders"
		if o, ok := r.WaitingCopy(&st, 1<<20); ok {
			packed := *o.Attributes[StateAttribute].StringValue
			if again, ok := Unpack(packed); !ok || !again.isFor("orders") || !IsValidText(packed) {
				t.Fatalf("%q becomes %q", value, packed)
			}
		}
	})
}

// A FIFO queue drops a move whose deduplication id it has seen. An edit is another move.
func TestTheDeduplicationIDOfAnEditDiffers(t *testing.T) {
	t.Parallel()
	st := redeliver.State{ID: "a", Replays: 1}
	ids := make(map[string]bool)
	for _, m := range []types.Message{
		{Body: aws.String("v")}, {Body: aws.String("w")},
		{Body: aws.String("v"), MessageAttributes: map[string]types.MessageAttributeValue{"a": TextAttribute("b")}},
		{Body: aws.String("v"), MessageAttributes: map[string]types.MessageAttributeValue{"a": TextAttribute("c")}},
	} {
		r := &Record{Native: m, CopyID: "copy"}
		id := ReplayDedupID(r, &st)
		if ids[id] || id != ReplayDedupID(r, &st) {
			t.Errorf("%s is the id of another move, or differs in the next try", id)
		}
		ids[id] = true
	}
}
