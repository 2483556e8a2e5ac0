package redelivertest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// record is a message as the broker keeps it. It never changes.
type record struct {
	uuid    string // empty if the message has none
	key     []byte // nil if there is none
	body    []byte
	headers []header // the user's, followed by redeliver's own block where redeliver writes
}

type header struct {
	name  string
	value []byte
}

// marshal returns the record of a published message.
func marshal(msg *message.Message) record {
	rec := record{uuid: msg.UUID, key: bytes.Clone(keyOf(msg.Context())), body: bytes.Clone(msg.Payload)}
	for _, name := range slices.Sorted(maps.Keys(msg.Metadata)) {
		rec.headers = append(rec.headers, header{name, []byte(msg.Metadata[name])})
	}
	return rec
}

// unmarshal returns a message that shares nothing with the record.
func (rec *record) unmarshal() *message.Message {
	msg := message.NewMessage(rec.uuid, bytes.Clone(rec.body))
	for _, h := range rec.headers {
		msg.Metadata[h.name] = string(h.value)
	}
	return msg
}

// with returns the record with a state after the user's headers.
func (rec record) with(st *redeliver.State) record {
	rec.headers = slices.Clip(rec.headers)
	for name, value := range driver.StateHeaders(st) {
		rec.headers = append(rec.headers, header{name, value})
	}
	return rec
}

// split separates redeliver's own block, which begins at the last attempt header, from a record. Only records on topics
// that redeliver writes have one.
func (rec record) split() (users record, ours []driver.Header) {
	for i, h := range slices.Backward(rec.headers) {
		if h.name != redeliver.HeaderAttempt {
			continue
		}
		for _, h := range rec.headers[i:] {
			ours = append(ours, driver.Header{Name: h.name, Value: string(h.value)})
		}
		rec.headers = rec.headers[:i:i]
		break
	}
	return rec, ours
}

// foreignHeaders reports redeliver headers on a topic that redeliver does not write. A service copied them there. They
// count as user headers.
func (rec *record) foreignHeaders() (found []redeliver.Finding) {
	for _, h := range rec.headers {
		if strings.HasPrefix(h.name, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, h.name, string(h.value), "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// expires returns the expiry time in the message's headers.
func (rec *record) expires() time.Time {
	for _, h := range slices.Backward(rec.headers) {
		if h.name == redeliver.HeaderExpires {
			at, _ := limits.ParseTime(string(h.value))
			return at
		}
	}
	return time.Time{}
}

// received is a record as one service reads it.
type received struct {
	record                      // without redeliver's own headers
	copied     record           // as it is copied; for a dead letter, with its block from the DLQ
	deadLetter *redeliver.State // set for a message that is read from a DLQ
	it         *item
	id         string
	state      *redeliver.State // set for a record that waited
	decode     func(*message.Message) error
	suspect    bool // as of its delivery; the item's own fields need the broker's mu
	crashes    int
	noted      *redeliver.State // of the item, as of its delivery
}

// Message returns the message for the handler.
func (d *received) Message() (msg *message.Message, err error) {
	msg = d.unmarshal()
	msg.UUID = cmp.Or(msg.UUID, d.id)
	if d.decode == nil {
		return msg, nil
	}
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return msg, d.decode(msg)
}

// deliveredIn returns the record of a message of this package, or nil for another message.
func deliveredIn(ctx context.Context) *received {
	if d := engine.FromContext(ctx); d != nil {
		if rec, ok := d.Record().(*received); ok {
			return rec
		}
	}
	return nil
}

// idOf returns the id of a record that was written to offset in a topic at a time.
func (rec *record) idOf(topic string, offset int64, at time.Time) string {
	if rec.uuid != "" {
		return engine.GivenID(rec.uuid)
	}
	return engine.PlaceID(topic, 0, offset, at)
}

type keyKey struct{}

// SetKey gives a message the key under which it is published. Messages of one key run one after
// another, in order. Messages without a key have no order.
func SetKey(msg *message.Message, key string) {
	msg.SetContext(context.WithValue(msg.Context(), keyKey{}, []byte(key)))
}

// Key returns the key of the message whose handler got ctx, or "" if it has none.
func Key(ctx context.Context) string {
	if rec := deliveredIn(ctx); rec != nil {
		return string(rec.key)
	}
	return string(keyOf(ctx))
}

func keyOf(ctx context.Context) []byte {
	key, _ := ctx.Value(keyKey{}).([]byte)
	return key
}
