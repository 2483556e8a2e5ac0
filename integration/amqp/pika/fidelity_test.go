//go:build prove

package pika_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/internal/limits"
)

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// kinds has a header of every type of AMQP and RabbitMQ, with its limits.
func kinds() headers {
	h := headers{
		"true": raw("t", 1), "false": raw("t", 0), "null": raw("V"),
		"int8": raw("b", 0x80), "uint8": raw("B", 0xff), "int16": raw("s", 0x80, 0), "uint16": raw("u", 0xff, 0xff),
		"int32": raw("I", 0x80, 0, 0, 0), "uint32": raw("i", 0xff, 0xff, 0xff, 0xff),
		"int64": raw("l", u64(1<<63)...), "int64 max": raw("l", u64(math.MaxInt64)...),
		"float":  raw("f", binary.BigEndian.AppendUint32(nil, math.Float32bits(math.SmallestNonzeroFloat32))...),
		"double": raw("d", u64(math.Float64bits(-math.MaxFloat64))...), "minus zero": raw("d", u64(1<<63)...),
		"decimal": raw("D", 2, 0xff, 0xff, 0xff, 0x85), "decimal max": raw("D", 255, 0x7f, 0xff, 0xff, 0xff),
		"time": raw("T", u64(1_700_000_000)...), "time 0": raw("T", u64(0)...), "time in ms": raw("T", u64(1_700_000_000_123)...),
		"text": text("grüße \u2028 \x00 <&>"), "empty": text(""), "no UTF-8": raw("S", 0xff, 0xfe, 0),
		"binary": raw("x", 0, 0xff, 1), "no bytes": raw("x"),
		"no table": table(nil), "no array": array(),
		"schlüssel": text("unicode"), strings.Repeat("k", 255): text("a long name"), "": text("no name"),
	}
	deep := table(map[string]value{"bottom": raw("V")})
	for range 20 {
		deep = table(map[string]value{"deeper": deep, "array": array(text("a"), table(map[string]value{"n": raw("I", 0, 0, 0, 1)}), array(raw("t", 1)))})
	}
	h["deep"] = deep
	items := make([]value, 0, len(h))
	for _, v := range h {
		items = append(items, v)
	}
	h["array of all"] = array(items...)
	return h
}

// The handler gets at every attempt what pika published, and so does pika from the DLQ.
func TestEveryPropertyAndHeaderIsKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		names := map[string]string{}
		for _, kind := range []string{amqp091.ExchangeTopic, amqp091.ExchangeFanout, amqp091.ExchangeDirect, amqp091.ExchangeHeaders} {
			names[kind] = b.queue + "." + kind
			if err := b.ch.ExchangeDeclare(names[kind], kind, true, true, false, false, nil); err != nil {
				t.Fatal(err)
			}
			keys := []string{"orders.*.#"}
			if kind == amqp091.ExchangeDirect {
				keys = []string{"direct key", strings.Repeat("k", 255)}
			}
			for _, key := range keys {
				if err := b.ch.QueueBind(b.queue, key, names[kind], false, amqp091.Table{"x-match": "any", "kind": "order"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		large := make([]byte, 5<<20)
		_, _ = rand.Read(large) // never fails
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		persistent := props{"delivery_mode": 2}
		msgs := []wire{
			{Key: b.queue, Body: []byte("all properties"), Headers: headers{"h": text("v")}, Props: props{
				"content_type": "application/json", "content_encoding": "gzip", "delivery_mode": 2, "priority": 7, "correlation_id": "c-1",
				"reply_to": "answers", "expiration": "600000", "message_id": "m-1", "timestamp": 4_000_000_000, "type": "order", "user_id": "guest", "app_id": "shop",
			}},
			{Key: b.queue, Body: []byte("long and unicode"), Props: props{
				"content_type": strings.Repeat("ü", 127), "correlation_id": strings.Repeat("c", 255), "message_id": "grüße\n\"", "type": " ", "app_id": "😀", "priority": 255,
				"timestamp": 1_700_000_000_123, "reply_to": strings.Repeat("r", 255), "delivery_mode": 1,
			}},
			{Key: b.queue, Body: []byte("time 0"), Props: props{"timestamp": 0, "delivery_mode": 2}},
			{Key: b.queue, Body: nil},
			{Key: b.queue, Body: large, Props: persistent, Headers: headers{"large": raw("t", 1)}},
			{Key: b.queue, Body: every, Props: persistent},
			{Key: b.queue, Body: []byte("kinds"), Props: persistent, Headers: kinds()},
			{Exchange: names["topic"], Key: "orders.eu.new", Body: []byte("topic"), Props: persistent},
			{Exchange: names["fanout"], Key: "", Body: []byte("fanout"), Props: persistent},
			{Exchange: names["fanout"], Key: "any key", Body: []byte("fanout with a key"), Props: persistent},
			{Exchange: names["direct"], Key: "direct key", Body: []byte("direct"), Props: persistent},
			{Exchange: names["direct"], Key: strings.Repeat("k", 255), Body: []byte("direct, long"), Props: persistent},
			{Exchange: names["headers"], Key: "ignored", Body: []byte("headers"), Props: persistent, Headers: headers{"kind": text("order")}},
		}
		b.peer.put(t, msgs...)
		b.unchanged(msgs)
		b.checkNoFaults()
	})
}

// unchanged compares messages with what the handler got at each of three attempts and with the DLQ.
func (b *fixture) unchanged(msgs []wire) (map[string][]observation, map[string]map[string]string) {
	b.Helper()
	sights, dead := b.observations(len(msgs), 3, byBody), b.deadLetters(len(msgs), byBody)
	states := make(map[string]map[string]string)
	for _, m := range msgs {
		name := limits.Cut(string(m.Body), 40)
		for _, s := range sights[string(m.Body)] {
			wantSame(b.T, name+", as the handler got it", s.wire, m)
		}
		letter, ok := dead[string(m.Body)]
		if !ok {
			b.Errorf("%q is not in the DLQ", name)
			continue
		}
		ours := state(&letter)
		wantSame(b.T, name+", in the DLQ", letter, b.wantDeadLetter(m))
		if ours[redeliver.HeaderAttempt] != "3" || ours[redeliver.HeaderReason] != "exhausted" || ours[redeliver.HeaderError] != fidelity.ErrDeclined.Error() {
			b.Errorf("%q is in the DLQ with %q", name, ours)
		}
		if all := sights[string(m.Body)]; len(all) > 0 && ours[redeliver.HeaderID] != all[0].id {
			b.Errorf("%q is %q in the DLQ, %q for the handler", name, ours[redeliver.HeaderID], all[0].id)
		}
		states[string(m.Body)] = ours
	}
	return sights, states
}

// Values are in the form in which users of pika write them.
func TestPythonsOwnValuesAreKept(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		m := wire{Key: b.queue, Body: []byte("python"), Props: props{"delivery_mode": 2}, Headers: headers{
			"text": {Py: `"grüße"`}, "bytes": {Py: `b"\x00\xff"`}, "true": {Py: "True"}, "int": {Py: "-5"}, "long": {Py: "1 << 40"},
			"decimal": {Py: `decimal.Decimal("-12.34")`}, "none": {Py: "None"}, "time": {Py: "datetime.datetime(2030, 1, 2, 3, 4, 5)"},
			"dict": {Py: `{"list": [1, "a", None, {"b": [True]}]}`},
		}}
		b.peer.put(t, m)
		m.Headers = headers{
			"text": text("grüße"), "bytes": raw("x", 0, 0xff), "true": raw("t", 1), "int": raw("I", 0xff, 0xff, 0xff, 0xfb), "long": raw("l", u64(1<<40)...),
			"decimal": raw("D", 2, 0xff, 0xff, 0xfb, 0x2e), "none": raw("V"), "time": raw("T", u64(1893553445)...),
			"dict": table(map[string]value{"list": array(
				raw("I", 0, 0, 0, 1), text("a"), raw("V"), table(map[string]value{"b": array(raw("t", 1))}))}),
		}
		b.unchanged([]wire{m})
		b.checkNoFaults()
	})
}

// Differences that the client library does not show are lost: between an empty text and none, between 0 and none, and
// the reserved property.
func TestDifferencesThatAreLost(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		m := wire{Key: b.queue, Body: []byte("empty"), Headers: headers{}, Props: props{
			"content_type": "", "message_id": "", "priority": 0, "cluster_id": "reserved", "delivery_mode": 2,
		}}
		b.peer.put(t, m)
		m.Props = props{"delivery_mode": 2}
		b.unchanged([]wire{m})
		b.checkNoFaults()
	})
}

// The id is Watermill's UUID, the message id, or a hash. It is the same at every attempt and in the DLQ, and the user's
// header is unchanged.
func TestIDs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		long := strings.Repeat("i", 255)
		wants := map[string]string{"uuid": "u-1", "id": "m-2", "both": "u-3", "no text": "m-4", "empty": "m-5", "long": long}
		msgs := []wire{
			{Key: b.queue, Body: []byte("uuid"), Headers: headers{amqp.UUIDHeader: text("u-1")}},
			{Key: b.queue, Body: []byte("id"), Props: props{"message_id": "m-2"}},
			{Key: b.queue, Body: []byte("both"), Headers: headers{amqp.UUIDHeader: text("u-3")}, Props: props{"message_id": "other"}},
			{Key: b.queue, Body: []byte("no text"), Headers: headers{amqp.UUIDHeader: raw("I", 0, 0, 0, 1)}, Props: props{"message_id": "m-4"}},
			{Key: b.queue, Body: []byte("empty"), Headers: headers{amqp.UUIDHeader: text("")}, Props: props{"message_id": "m-5"}},
			{Key: b.queue, Body: []byte("long"), Props: props{"message_id": long}},
			{Key: b.queue, Body: []byte("nothing"), Headers: headers{"at": raw("T", u64(1_700_000_000)...), "x": array(raw("T", u64(1)...))}},
			{Key: b.queue, Body: []byte("nothing, no text"), Headers: headers{amqp.UUIDHeader: raw("V")}},
		}
		b.peer.put(t, msgs...)
		sights, _ := b.unchanged(msgs)
		for body, all := range sights {
			for _, s := range all {
				want, known := wants[body]
				if !known {
					want = all[0].id
				}
				if s.id != want || s.uuid != s.id || known == strings.HasPrefix(s.id, "derived:") {
					t.Errorf("%s: attempt %d is %q with UUID %q, want %q", body, s.attempt, s.id, s.uuid, want)
				}
			}
		}
		b.checkNoFaults()
	})
}

// A derived id is the same for a process that gets the message again.
func TestADerivedIDIsTheSameForARedelivery(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		begun := make(chan struct{})
		b.handler = blocked(begun)
		stop := b.start(b.config(policy))
		m := wire{Key: b.queue, Body: bytes.Repeat([]byte("x"), 100), Headers: headers{"at": raw("T", u64(1_700_000_000)...)}}
		b.peer.put(t, m)
		<-begun
		stop()
		first := seen(t, b.peer.Take(t, b.queue+".seen", 1)[0])
		b.handler = nil
		b.start(b.config(redeliver.Policy{MaxRetries: redeliver.NoRetries}))
		again := seen(t, b.peer.Take(t, b.queue+".seen", 1)[0])
		if count := again.Headers["x-delivery-count"]; count.Kind == "" {
			t.Errorf("the second delivery is not a redelivery: %v", again.Headers)
		}
		if first.id != again.id || !strings.HasPrefix(first.id, "derived:") || again.attempt != 1 {
			t.Errorf("first %q, again %q at attempt %d", first.id, again.id, again.attempt)
		}
	})
}
