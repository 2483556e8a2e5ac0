package kafkashare

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// UUIDHeader carries a Watermill message's UUID, as in watermill-kafka and adapters/kafka.
const UUIDHeader = wirename.WatermillUUID

// Marshaler turns Kafka records into Watermill messages and back. It must be safe for concurrent use.
type Marshaler interface {
	// Unmarshal makes the message that the handler gets. It must not change the record, and the message must not share
	// its bytes. After an error or a panic, the record goes to the DLQ as it is, undecodable.
	Unmarshal(rec *kgo.Record) (*message.Message, error)
	// Marshal makes the record of a message for publishing.
	Marshal(topic string, msg *message.Message) (*kgo.Record, error)
}

// DefaultMarshaler uses the format of watermill-kafka and adapters/kafka: the UUID is a header, each
// metadata entry is a header, and the payload is the value. The key is that of SetKey, or else null.
type DefaultMarshaler struct{}

// Unmarshal implements [Marshaler].
func (DefaultMarshaler) Unmarshal(rec *kgo.Record) (*message.Message, error) {
	msg := message.NewMessage("", slices.Clone(rec.Value)) // cloned, so that a handler cannot change the retry
	for _, h := range rec.Headers {
		if h.Key == UUIDHeader {
			msg.UUID = string(h.Value)
			continue
		}
		msg.Metadata[h.Key] = string(h.Value)
	}
	if msg.UUID == "" {
		msg.UUID = recordID(rec)
	}
	return msg, nil
}

// Marshal implements [Marshaler].
func (DefaultMarshaler) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	key, _ := msg.Context().Value(keyKey{}).([]byte)
	rec := &kgo.Record{Topic: topic, Key: key, Value: msg.Payload}
	rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: UUIDHeader, Value: []byte(msg.UUID)})
	for k, v := range msg.Metadata {
		if k != UUIDHeader {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
		}
	}
	return rec, nil
}

type keyKey struct{}

// SetKey gives a message the key under which it is published.
func SetKey(msg *message.Message, key []byte) {
	msg.SetContext(context.WithValue(msg.Context(), keyKey{}, key))
}

// RecordFromContext returns the Kafka record of the message whose handler got ctx, as it was in its
// origin. It is nil for a context of another message. The record must be neither changed nor acked.
func RecordFromContext(ctx context.Context) *kgo.Record {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*kgo.Record); ok {
			return r
		}
	}
	return nil
}

// splitHeaders separates the user's headers from redeliver's block, which begins at the last attempt header.
func splitHeaders(all []kgo.RecordHeader) (users []kgo.RecordHeader, ours []driver.Header) {
	for i, h := range slices.Backward(all) {
		if h.Key != redeliver.HeaderAttempt {
			continue
		}
		for _, h := range all[i:] {
			ours = append(ours, driver.Header{Name: h.Key, Value: string(h.Value)})
		}
		return all[:i:i], ours
	}
	return all, nil
}

// foreignHeaders reports redeliver headers on a topic that redeliver does not write.
func foreignHeaders(rec *kgo.Record) (found []redeliver.Finding) {
	for _, h := range rec.Headers {
		if strings.HasPrefix(h.Key, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, h.Key, string(h.Value), "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// maxStubKey is the longest key of a dead letter without its body, in bytes.
const maxStubKey = 4096

// copyFor returns the record to write to topic: key, value and headers byte for byte, and redeliver's block if st is
// not nil.
func copyFor(rec *kgo.Record, topic string, st *redeliver.State) *kgo.Record {
	c := &kgo.Record{Topic: topic, Key: rec.Key, Value: rec.Value, Headers: slices.Clip(rec.Headers)}
	if st == nil {
		return c
	}
	if st.Truncated != "" {
		c.Value, c.Headers = nil, nil
		if len(c.Key) > maxStubKey {
			c.Key = nil
		}
	} else if st.DeadLetter != nil { // the state with which it was in the DLQ
		appendState(c, st.DeadLetter)
	}
	appendState(c, st)
	return c
}

// appendState appends redeliver's block to a record's headers.
func appendState(rec *kgo.Record, st *redeliver.State) {
	for name, value := range driver.StateHeaders(st) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: value})
	}
}

// recordID returns Watermill's UUID header of a record, or else its place and timestamp, see [engine.PlaceID].
func recordID(rec *kgo.Record) string {
	if id := header(rec, UUIDHeader); id != "" {
		return engine.GivenID(id)
	}
	return engine.PlaceID(rec.Topic, rec.Partition, rec.Offset, rec.Timestamp)
}

// header returns the last value of a header, or "".
func header(rec *kgo.Record, name string) string {
	for _, h := range slices.Backward(rec.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// headerBytes is the memory of a header beside its name and value: a text and a slice.
const headerBytes = 64

// sizeOf returns the memory that a record takes, in bytes.
func sizeOf(rec *kgo.Record) int {
	n := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += len(h.Key) + len(h.Value) + headerBytes
	}
	return n
}

// cutHeaders returns why a record's headers are not read, or nil. Then the record keeps only the last headers, without
// their array. Redeliver's are among them.
func cutHeaders(rec *kgo.Record, isOurs bool) error {
	err := engine.CheckHeaderCount(len(rec.Headers), isOurs)
	if err != nil {
		rec.Headers = slices.Clone(rec.Headers[len(rec.Headers)-limits.MaxTail:])
	}
	return err
}

// makeStub makes a message go to the DLQ without its headers and its body.
func (c codec) makeStub(m *driver.Message[*kgo.Record], why error) {
	st, rec := m.State, m.Record
	if st == nil {
		st = new(redeliver.State)
		c.State(m, st)
	}
	engine.MakeStub(m, st, rec.Value, why)
	rec.Headers, rec.Value = nil, nil
	m.Size = sizeOf(rec)
}

// expiresOf returns the expiry that a record names.
func expiresOf(rec *kgo.Record) time.Time {
	at, _ := limits.ParseTime(header(rec, redeliver.HeaderExpires))
	return at
}

// timestamp returns the time of a record. It is zero if the producer has no clock and wrote 0 or -1.
func timestamp(rec *kgo.Record) time.Time {
	if rec.Timestamp.UnixMilli() > 0 {
		return rec.Timestamp
	}
	return time.Time{}
}

// headers are the headers of a record, as the policy sees them.
type headers kgo.Record

// Get returns the last value of a header, or "".
func (h *headers) Get(name string) string { return header((*kgo.Record)(h), name) }

// codec returns the parts of a record as they were in its origin. The engine asks it for the state of first deliveries
// only. It implements driver.Codec.
type codec struct{ layout *layout }

var _ driver.Codec[*kgo.Record] = codec{}

// toWatermill returns the function that makes the Watermill message of a record.
func toWatermill(marshaler Marshaler) func(*driver.Message[*kgo.Record]) (*message.Message, error) {
	return func(m *driver.Message[*kgo.Record]) (*message.Message, error) {
		msg, err := marshaler.Unmarshal(m.Record)
		if err == nil && msg != nil && m.State != nil && msg.UUID == recordID(m.Record) {
			msg.UUID = m.State.ID // the id that the message came with, which an older version may have derived in another way
		}
		return msg, err
	}
}

// Key implements [driver.Codec].
func (codec) Key(m *driver.Message[*kgo.Record]) []byte { return m.Record.Key }

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*kgo.Record]) []byte { return m.Record.Value }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*kgo.Record]) redeliver.Headers { return (*headers)(m.Record) }

// Age implements [driver.Codec].
func (codec) Age(m *driver.Message[*kgo.Record]) (state *redeliver.State, created, expires time.Time) {
	return nil, timestamp(m.Record), expiresOf(m.Record)
}

// State implements [driver.Codec].
func (c codec) State(m *driver.Message[*kgo.Record], st *redeliver.State) {
	rec := m.Record
	st.ID, st.Group, st.Origin = recordID(rec), c.layout.group, c.layout.origin
	st.Source = redeliver.Source{Known: true, Partition: rec.Partition, Offset: rec.Offset, Timestamp: timestamp(rec)}
	st.Expires = expiresOf(rec)
}

// readDeadLetter removes the block of a DLQ from a record that was copied from there, and returns the state in it.
func (l *layout) readDeadLetter(rec *kgo.Record) (*redeliver.State, []redeliver.Finding) {
	users, ours := splitHeaders(rec.Headers)
	if ours == nil {
		return nil, nil
	}
	dead, found := engine.DeadLetterState(ours, func(origin, group string) bool { return dlqName(origin, group) == l.origin })
	if dead != nil {
		rec.Headers = users
	}
	return dead, found
}
