package pubsub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// record is a message as the subscriber delivered it, without redeliver's metadata entry. These files handle it, in
// order:
//
//	subscriber.go           subscribes, with an engine
//	source.go               reads it, and later acks or nacks it
//	record.go, state.go     separate the user's part from redeliver's
//	store.go, layout.go     write its copy to the next topic
//	guard.go                makes every call of the user's Pub/Sub
//
// Payload and metadata do not change. The payload is a copy, because message.Copy shares one payload among all receivers, and one
// of them may change it. The metadata is copied only if it has redeliver's entry.
type record struct {
	uuid     string
	payload  []byte
	metadata message.Metadata
	carried

	raw     *message.Message // the delivered message, to be acked
	unwatch func() bool      // see source.abandonWhenTakenBack
	state   *redeliver.State // from a topic of redeliver; nil for a first delivery
	tries   int              // tries to write it, one at a time
}

// newRecord separates a message into the user's part and the state in redeliver's entry. Only messages of redeliver's
// topics have a state.
func newRecord(raw *message.Message, ours bool) *record {
	r := &record{uuid: raw.UUID, payload: bytes.Clone(raw.Payload), metadata: raw.Metadata, raw: raw}
	value, there := r.metadata[StateKey]
	if !ours || !there {
		return r
	}
	c, ok := unpack(value)
	if !ok {
		return r
	}
	r.carried = c
	r.metadata = maps.Clone(r.metadata)
	delete(r.metadata, StateKey)
	if c.own != nil {
		r.metadata[StateKey] = *c.own
	}
	return r
}

// withState returns a new message of the record with c as its state.
func (r *record) withState(c *carried) (*message.Message, error) {
	msg := r.unmarshal()
	if own, ok := r.metadata[StateKey]; ok {
		c.own = &own
	}
	value, err := c.pack()
	if err != nil {
		return nil, err
	}
	msg.Metadata[StateKey] = value
	return msg, nil
}

func (r *record) unmarshal() *message.Message {
	msg := message.NewMessage(r.uuid, bytes.Clone(r.payload))
	maps.Copy(msg.Metadata, r.metadata)
	return msg
}

// id returns the message's UUID. If it has none, id returns a hash of the content, marked as derived, which is the same for equal
// messages.
func (r *record) id() string {
	if r.uuid != "" {
		return engine.GivenID(r.uuid)
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %s", len(r.payload), r.payload)
	for _, name := range slices.Sorted(maps.Keys(r.metadata)) {
		_, _ = fmt.Fprintf(h, "%q %q", name, r.metadata[name])
	}
	return wirename.DerivedID + hex.EncodeToString(h.Sum(nil)[:16])
}

// foreignEntries reports entries with redeliver's names on a topic that redeliver does not write. They belong to the
// user.
func (r *record) foreignEntries() (found []redeliver.Finding) {
	for _, name := range slices.Sorted(maps.Keys(r.metadata)) {
		if name == StateKey || strings.HasPrefix(name, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, name, r.metadata[name], "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// codec reads the parts of a record. It implements driver.Codec.
type codec struct{ layout *layout }

var _ driver.Codec[*record] = codec{}

// toWatermill returns the function that makes the message of a record that the handler gets. decode may be nil.
func toWatermill(decode func(*message.Message) error) func(*driver.Message[*record]) (*message.Message, error) {
	return func(m *driver.Message[*record]) (*message.Message, error) {
		msg := m.Record.unmarshal()
		msg.SetContext(m.Record.raw.Context())
		if msg.UUID == "" {
			msg.UUID = m.Record.id()
		}
		if decode == nil {
			return msg, nil
		}
		return msg, decode(msg)
	}
}

// Key implements [driver.Codec].
func (codec) Key(*driver.Message[*record]) []byte { return nil }

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*record]) []byte { return m.Record.payload }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*record]) redeliver.Headers { return m.Record.metadata }

// Age implements [driver.Codec]. The time of publishing is unknown.
func (codec) Age(m *driver.Message[*record]) (state *redeliver.State, created, expires time.Time) {
	if st := m.Record.state; st != nil {
		return st, time.Time{}, time.Time{}
	}
	return nil, time.Time{}, m.Record.expires()
}

// expires returns the expiry that the message names.
func (r *record) expires() time.Time {
	at, _ := limits.ParseTime(r.metadata[redeliver.HeaderExpires])
	return at
}

// State implements [driver.Codec].
func (c codec) State(m *driver.Message[*record], st *redeliver.State) {
	if m.Record.state != nil {
		*st = *m.Record.state
		return
	}
	st.ID, st.Group, st.Origin, st.Expires = m.Record.id(), c.layout.group, c.layout.topic, m.Record.expires()
}

// MessageFromContext returns the message behind the one whose handler got ctx, as the subscriber
// first delivered it: UUID, metadata and payload, without redeliver's own entry. It is nil for a
// context of another message. It must not be changed, acked or nacked.
func MessageFromContext(ctx context.Context) *message.Message {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*record); ok {
			return &message.Message{UUID: r.uuid, Metadata: r.metadata, Payload: r.payload}
		}
	}
	return nil
}
