package dlq

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// random makes messages of everything that AMQP can express.
type random struct{ *rand.Rand }

func (r random) text() string {
	b := make([]byte, r.IntN(12))
	for i := range b {
		if b[i] = byte('a' + r.IntN(26)); r.IntN(4) == 0 {
			b[i] = byte(r.IntN(256))
		}
	}
	return string(b)
}

// time returns any number of seconds that has 64 bits, and often one that people mean. All times but the zero time.Time, which is
// no property, can be sent.
func (r random) time() time.Time {
	switch r.IntN(4) {
	case 0:
		return time.Unix(int64(r.Uint64()), 0)
	case 1: // milliseconds
		return time.Unix(1_700_000_000_000+r.Int64N(1_000_000_000_000), 0)
	case 2:
		return time.Unix(253_402_300_790+r.Int64N(20), 0)
	default:
		return time.Unix(1+r.Int64N(2_000_000_000), 0)
	}
}

func (r random) value(depth int) any {
	kinds := 16
	if depth == 0 {
		kinds = 14
	}
	switch r.IntN(kinds) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2:
		return int8(r.Uint32())
	case 3:
		return int16(r.Uint32())
	case 4:
		return int32(r.Uint32())
	case 5:
		return int64(r.Uint64())
	case 6:
		return byte(r.Uint32())
	case 7:
		return uint16(r.Uint32())
	case 8:
		return r.Uint32()
	case 9:
		return math.Float32frombits(r.Uint32())
	case 10:
		return math.Float64frombits(r.Uint64())
	case 11:
		return r.time()
	case 12:
		return []byte(r.text())
	case 13:
		return amqp091.Decimal{Scale: uint8(r.IntN(256) >> r.IntN(8)), Value: int32(r.Uint32()) >> r.IntN(32)}
	case 14:
		return r.table(depth - 1)
	default:
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = r.value(depth - 1)
		}
		return list
	}
}

func (r random) table(depth int) amqp091.Table {
	t := make(amqp091.Table)
	for range r.IntN(6) {
		if r.IntN(3) == 0 {
			t[r.text()] = r.text()
		} else {
			t[r.text()] = r.value(depth)
		}
	}
	return t
}

func (r random) publishing() amqp091.Publishing {
	p := amqp091.Publishing{
		Headers: r.table(3), ContentType: r.text(), ContentEncoding: r.text(), DeliveryMode: amqp091.Persistent, Priority: byte(r.IntN(11)),
		CorrelationId: r.text(), ReplyTo: r.text(), Expiration: fmt.Sprint(r.IntN(1_000_000)), MessageId: r.text(), Timestamp: r.time(),
		Type: r.text(), UserId: r.text(), AppId: r.text(), Body: []byte(r.text()),
	}
	if r.IntN(2) == 0 {
		p.DeliveryMode = amqp091.Transient
	}
	return p
}

// plain returns a value in a form that reflect.DeepEqual compares as AMQP does: times by their seconds, floats by their bits.
func plain(v any) any {
	switch v := v.(type) {
	case time.Time:
		return fmt.Sprint("time ", v.Unix())
	case float32:
		return fmt.Sprint("float32 ", v) // a NaN is as good as any other
	case float64:
		return fmt.Sprint("float64 ", v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plain(v[i])
		}
		return list
	case amqp091.Table:
		t := make(amqp091.Table, len(v))
		for name := range v {
			t[name] = plain(v[name])
		}
		return t
	default:
		return v
	}
}

func plainMessage(p amqp091.Publishing) amqp091.Publishing {
	p.Headers, _ = plain(p.Headers).(amqp091.Table)
	p.Body = append([]byte{}, p.Body...)
	p.Timestamp = time.Unix(p.Timestamp.Unix(), 0)
	return p
}

// Messages of all of AMQP's types, with any bytes and times, are the same for the handler of a retry, in the DLQ, in a replay and
// behind a file.
func TestAnyMessageIsTheSameEverywhere(t *testing.T) {
	for seed := range uint64(3000) {
		r := random{rand.New(rand.NewPCG(seed, 54))}
		was := r.publishing()
		want := plainMessage(was)
		differs := func(where string, got amqp091.Publishing) {
			if got = plainMessage(got); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %s it is\n%#v, want\n%#v", seed, where, got, want)
			}
		}
		rec := wire.Record{Delivery: wire.DeliveryOf(was, r.text(), r.text())}
		st := redeliver.State{ID: "u-1", Group: "orders", Origin: "orders", Attempts: 2, Reason: redeliver.ReasonExhausted, LastFailed: buried}

		retry := wire.DeliveryOf(rec.Publishing(&st), "", "orders.retry")
		wire.RestoreOriginal(&retry)
		differs("in a retry", wire.PlainCopy(&retry))

		m := testDeadLetters().readCopy(wire.DeliveryOf(rec.DeadCopy(&st, 0), "", "orders.dlq"))
		replayed := recordFrom(m, m.Headers, nil)
		differs("in a replay", wire.PlainCopy(&replayed.Delivery))

		edited := *m
		edited.Headers = append(slices.Clone(m.Headers), deadletter.Header{Name: "new", Value: []byte{0xff}})
		copied := recordFrom(&edited, edited.Headers, nil)
		want.Headers = maps.Clone(want.Headers)
		want.Headers["new"] = []byte{0xff}
		differs("in an edit", wire.PlainCopy(&copied.Delivery))
		delete(want.Headers, "new")

		fromFile := exportAndImport(t, m)
		imported := recordFrom(fromFile, fromFile.Headers, nil)
		differs("behind a file", wire.PlainCopy(&imported.Delivery))
		if imported.Exchange != rec.Exchange || imported.RoutingKey != rec.RoutingKey {
			t.Fatalf("seed %d: behind a file it is of %q and %q, want %q and %q", seed, imported.Exchange, imported.RoutingKey, rec.Exchange, rec.RoutingKey)
		}
	}
}

// exportAndImport writes a message into a file and reads it from there.
func exportAndImport(t *testing.T, m *deadletter.Message) *deadletter.Message {
	t.Helper()
	added, err := adaptertest.ThroughFile(t.Context(), testDeadLetters().info, m)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// The text of a value, which is signed and is in files, has the whole value: no other one has the same text.
func TestTheTextOfAValueHasAllOfIt(t *testing.T) {
	for seed := range uint64(5000) {
		r := random{rand.New(rand.NewPCG(seed, 5))}
		was := r.table(4)
		text := wire.DescribeValue(was)
		if got, ok := wire.ParseValue(text); !ok || !reflect.DeepEqual(plain(got), plain(was)) {
			t.Fatalf("seed %d: %#v is %s, which is read as %#v", seed, was, text, got)
		}
	}
}
