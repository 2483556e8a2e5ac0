package record

import (
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Codec returns the parts of a record. The source has removed redeliver's headers, and has restored the topic,
// partition, offset and timestamp of the origin. Message.State has the state of a record that comes from a topic of
// ours. Codec implements driver.Codec.
type Codec struct{ Origin, Group string }

var _ driver.Codec[*sarama.ConsumerMessage] = Codec{}

// ToWatermill returns the function that makes the Watermill message of a record with a marshaler's Unmarshal.
func ToWatermill(unmarshal func(*sarama.ConsumerMessage) (*message.Message, error)) func(*driver.Message[*sarama.ConsumerMessage]) (*message.Message, error) {
	return func(m *driver.Message[*sarama.ConsumerMessage]) (*message.Message, error) {
		msg, err := unmarshal(m.Record)
		if err == nil && msg != nil && m.State != nil && msg.UUID == ID(m.Record) {
			msg.UUID = m.State.ID // the id that the message came with, which an older version may have derived in another way
		}
		return msg, err
	}
}

// Key implements [driver.Codec].
func (Codec) Key(m *driver.Message[*sarama.ConsumerMessage]) []byte { return m.Record.Key }

// Body implements [driver.Codec].
func (Codec) Body(m *driver.Message[*sarama.ConsumerMessage]) []byte { return m.Record.Value }

// Headers implements [driver.Codec].
func (Codec) Headers(m *driver.Message[*sarama.ConsumerMessage]) redeliver.Headers {
	return (*headers)(m.Record)
}

// Age implements [driver.Codec].
func (Codec) Age(m *driver.Message[*sarama.ConsumerMessage]) (state *redeliver.State, created, expires time.Time) {
	if m.State != nil {
		return m.State, time.Time{}, time.Time{}
	}
	return nil, timestamp(m.Record), Expires(m.Record)
}

// timestamp returns the time of a record. It is zero if the producer has no clock and wrote 0 or -1.
func timestamp(rec *sarama.ConsumerMessage) time.Time {
	if rec.Timestamp.UnixMilli() > 0 {
		return rec.Timestamp
	}
	return time.Time{}
}

// Expires returns the expiry that a record names.
func Expires(rec *sarama.ConsumerMessage) time.Time {
	at, _ := limits.ParseTime((*headers)(rec).Get(redeliver.HeaderExpires))
	return at
}

// State implements [driver.Codec].
func (c Codec) State(m *driver.Message[*sarama.ConsumerMessage], st *redeliver.State) {
	if m.State != nil {
		*st = *m.State
		return
	}
	rec := m.Record
	st.ID, st.Group, st.Origin = ID(rec), c.Group, c.Origin
	st.Source = redeliver.Source{Known: true, Partition: rec.Partition, Offset: rec.Offset, Timestamp: timestamp(rec)}
	st.Expires = Expires(rec)
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
