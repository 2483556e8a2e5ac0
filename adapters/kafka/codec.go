package kafka

import (
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// codec returns the parts of a record as they were in its origin: redeliver's headers are removed, and topic,
// partition, offset and timestamp are the origin's. Message.State has the state of a record that comes from a topic of
// ours. codec implements driver.Codec.
type codec struct {
	origin, group string
	marshaler     Marshaler
}

var _ driver.Codec[*sarama.ConsumerMessage] = codec{}

// Message implements [driver.Codec].
func (c codec) Message(m *driver.Message[*sarama.ConsumerMessage]) (*message.Message, error) {
	return engine.Unmarshal(c.marshaler, m.Record)
}

// Key implements [driver.Codec].
func (codec) Key(m *driver.Message[*sarama.ConsumerMessage]) []byte { return m.Record.Key }

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*sarama.ConsumerMessage]) []byte { return m.Record.Value }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*sarama.ConsumerMessage]) redeliver.Headers {
	return (*headers)(m.Record)
}

// Age implements [driver.Codec].
func (codec) Age(m *driver.Message[*sarama.ConsumerMessage]) (state *redeliver.State, created, expires time.Time) {
	if m.State != nil {
		return m.State, time.Time{}, time.Time{}
	}
	return nil, timestamp(m.Record), expiresOf(m.Record)
}

// timestamp returns the time of a record. It is zero if the producer has no clock and wrote 0 or -1.
func timestamp(rec *sarama.ConsumerMessage) time.Time {
	if rec.Timestamp.UnixMilli() > 0 {
		return rec.Timestamp
	}
	return time.Time{}
}

// expiresOf returns the expiry that a record names.
func expiresOf(rec *sarama.ConsumerMessage) time.Time {
	at, _ := limits.ParseTime((*headers)(rec).Get(redeliver.HeaderExpires))
	return at
}

// State implements [driver.Codec].
func (c codec) State(m *driver.Message[*sarama.ConsumerMessage], st *redeliver.State) {
	if m.State != nil {
		*st = *m.State
		return
	}
	rec := m.Record
	st.ID, st.Group, st.Origin = recordID(rec), c.group, c.origin
	st.Source = redeliver.Source{Known: true, Partition: rec.Partition, Offset: rec.Offset, Timestamp: timestamp(rec)}
	st.Expires = expiresOf(rec)
}

// headers are the headers of a record, as the policy sees them.
type headers sarama.ConsumerMessage

// Get returns the last value of a header, or "".
func (h *headers) Get(name string) string {
	for _, h := range slices.Backward(h.Headers) {
		if h != nil && string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}
