package amqp

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// codec reads the parts of a delivery. It implements driver.Codec.
type codec struct{ layout *layout.Layout }

func (r *reader) codec() codec { return codec{r.layout} }

var _ driver.Codec[*delivery] = codec{}

// id returns the message's id.
func (d *delivery) id() string {
	if d.state != nil {
		return d.state.ID
	}
	return d.StateID()
}

// toWatermill returns the function that makes the Watermill message of a delivery.
func toWatermill(marshaler Marshaler) func(*driver.Message[*delivery]) (*message.Message, error) {
	return func(m *driver.Message[*delivery]) (*message.Message, error) {
		if m.Record.Unreadable != nil {
			return nil, m.Record.Unreadable
		}
		return marshaler.Unmarshal(&m.Record.Delivery)
	}
}

// Key implements [driver.Codec].
func (codec) Key(m *driver.Message[*delivery]) []byte {
	if m.Record.key == "" {
		return nil
	}
	return []byte(m.Record.key)
}

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*delivery]) []byte { return m.Record.Body }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*delivery]) redeliver.Headers { return &m.Record.Record }

// Age implements [driver.Codec].
func (codec) Age(m *driver.Message[*delivery]) (state *redeliver.State, created, ends time.Time) {
	d := m.Record
	if d.state != nil {
		return d.state, time.Time{}, time.Time{}
	}
	return nil, d.Timestamp, wire.ExpiryOf(d.Own(), d.arrived)
}

// State implements [driver.Codec].
func (c codec) State(m *driver.Message[*delivery], st *redeliver.State) {
	d := m.Record
	if d.state != nil {
		*st = *d.state
		return
	}
	st.ID, st.Group, st.Origin, st.DeadLetter = d.StateID(), c.layout.Queue, c.layout.Queue, d.DeadLetter
	st.Source.Timestamp = d.Timestamp
	if st.Expires = wire.ExpiryOf(d.Own(), d.arrived); !limits.Plausible(d.Timestamp) && !st.Expires.IsZero() {
		st.Source.Timestamp = d.arrived // the expiration counts from here
	}
}
