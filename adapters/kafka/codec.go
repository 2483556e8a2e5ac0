package kafka

import (
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// codec reads the parts of a record as it stood in its origin: redeliver's own headers are cut off, topic, partition, offset
// and timestamp are the origin's. What the record brought from a topic of ours is in Message.State. It implements driver.Codec.
type codec struct {
	origin, group string
	marshaler     Marshaler
}

var _ driver.Codec[*sarama.ConsumerMessage] = codec{}

// Message implements [driver.Codec].
func (c codec) Message(m *driver.Message[*sarama.ConsumerMessage]) (msg *message.Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	msg, err = c.marshaler.Unmarshal(m.Record)
	if err == nil && msg == nil {
		err = errors.New("the marshaler returned no message")
	}
	return msg, err
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
func (codec) Age(m *driver.Message[*sarama.ConsumerMessage]) (brought *redeliver.State, born, expires time.Time) {
	if m.State != nil {
		return m.State, time.Time{}, time.Time{}
	}
	return nil, timestamp(m.Record), expiresOf(m.Record)
}

// timestamp is a record's; zero where its producer has no clock, which writes 0 or -1.
func timestamp(rec *sarama.ConsumerMessage) time.Time {
	if rec.Timestamp.UnixMilli() > 0 {
		return rec.Timestamp
	}
	return time.Time{}
}

// expiresOf is the end that a record names.
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
	st.ID, st.Group, st.Origin = uuidOf(rec), c.group, c.origin
	st.Source = redeliver.Source{Known: true, Partition: rec.Partition, Offset: rec.Offset, Timestamp: timestamp(rec)}
	st.Expires = expiresOf(rec)
}

// headers are a record's, as the policy sees them.
type headers sarama.ConsumerMessage

// Get is the last value of a header; "" where there is none.
func (h *headers) Get(name string) string {
	for _, h := range slices.Backward(h.Headers) {
		if h != nil && string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}
