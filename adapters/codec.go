package adapters

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// codec is an adapter's codec with the parts that all adapters share.
type codec[R any] struct {
	driver.Codec[R]
	origin, group string
}

// Message implements [driver.Codec]: a panic is an error.
func (c codec[R]) Message(m *driver.Message[R]) (*message.Message, error) {
	return engine.Unmarshal(unmarshaler[R](c), m)
}

type unmarshaler[R any] codec[R]

// Unmarshal implements [engine.Unmarshaler].
func (u unmarshaler[R]) Unmarshal(m *driver.Message[R]) (*message.Message, error) {
	return u.Codec.Message(m)
}

// Age implements [driver.Codec].
func (c codec[R]) Age(m *driver.Message[R]) (state *redeliver.State, created, expires time.Time) {
	state, created, expires = c.Codec.Age(m)
	if state == nil && expires.IsZero() {
		expires = c.expires(m)
	}
	return state, created, expires
}

// State implements [driver.Codec].
func (c codec[R]) State(m *driver.Message[R], st *redeliver.State) {
	c.Codec.State(m, st)
	if state, _, _ := c.Codec.Age(m); state != nil {
		return
	}
	st.Group, st.Origin = c.group, c.origin
	if st.ID == "" && st.Source.Known {
		st.ID = engine.PlaceID(c.origin, st.Source.Partition, st.Source.Offset, st.Source.Timestamp)
	} else {
		st.ID = engine.GivenID(st.ID)
	}
	if st.Expires.IsZero() {
		st.Expires = c.expires(m)
	}
}

// expires returns the expiry in the message's own headers.
func (c codec[R]) expires(m *driver.Message[R]) time.Time {
	h := c.Headers(m)
	if h == nil {
		return time.Time{}
	}
	at, _ := limits.ParseTime(h.Get(redeliver.HeaderExpires))
	return at
}
