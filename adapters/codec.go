package adapters

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// codec is an adapter's codec with the parts that all adapters share.
type codec[R any] struct {
	driver.Codec[R]
	origin, group string
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

// PublishDue reads Watermill's delay metadata (package components/delay) for a publisher, and returns when a message published at
// now may be delivered. ok is false if no delay is left.
func PublishDue(msg *message.Message, now time.Time) (due time.Time, ok bool, err error) {
	return binding.PublishDue(msg, now)
}
