package pubsub

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// record is a message as the subscriber delivered it, without redeliver's own
// entry. Nothing in it changes: the payload is its own, because message.Copy shares it
// among all who get the message, and one of them may change it in place; the metadata,
// which that copies, it shares with what the subscriber delivered where it has no entry
// of ours. Nobody else gets them. It implements delayqueue.Record.
//
// unanswered alone changes, by the one write at a time that a record has.
type record struct {
	uuid     string
	payload  []byte
	metadata message.Metadata
	decode   func(*message.Message) error

	unanswered *publishCall // has not returned within its try
}

// newRecord takes a message apart: what is the user's, and what stands in our
// entry, which is nil where nothing does. Only a message of a topic that
// redeliver writes has something in it.
func newRecord(msg *message.Message, ours bool, decode func(*message.Message) error) (*record, *carried) {
	r := &record{uuid: msg.UUID, payload: bytes.Clone(msg.Payload), metadata: msg.Metadata, decode: decode}
	value, there := r.metadata[StateKey]
	if !ours || !there {
		return r, nil
	}
	c, ok := unpack(value)
	if !ok {
		return r, nil
	}
	r.metadata = maps.Clone(r.metadata)
	delete(r.metadata, StateKey)
	if c.own != nil {
		r.metadata[StateKey] = *c.own
	}
	return r, &c
}

// with is a new message of the record, with what is carried.
func (r *record) with(c *carried) (*message.Message, error) {
	msg := r.unmarshal()
	if c == nil {
		return msg, nil
	}
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

// Message implements [delayqueue.Record].
func (r *record) Message() (msg *message.Message, err error) {
	msg = r.unmarshal()
	if msg.UUID == "" {
		msg.UUID = r.id()
	}
	if r.decode == nil {
		return msg, nil
	}
	defer func() {
		if v := recover(); v != nil {
			msg, err = nil, &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return msg, r.decode(msg)
}

// MessageFromContext returns the message behind the one whose handler got ctx, as
// the subscriber delivered it first: UUID, metadata and payload, without
// redeliver's own entry. It is nil for a context of another message. It must not
// be changed, acked or nacked.
func MessageFromContext(ctx context.Context) *message.Message {
	if d := delayqueue.FromContext(ctx); d != nil {
		if r, ok := d.Record.(*record); ok {
			return &message.Message{UUID: r.uuid, Metadata: r.metadata, Payload: r.payload}
		}
	}
	return nil
}

// id is the message's UUID. One without has a hash of what is in it, marked as
// derived: equal messages share it.
func (r *record) id() string {
	if r.uuid != "" {
		return delayqueue.GivenID(r.uuid)
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %s", len(r.payload), r.payload)
	for _, name := range slices.Sorted(maps.Keys(r.metadata)) {
		_, _ = fmt.Fprintf(h, "%q %q", name, r.metadata[name])
	}
	return "derived:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// strangers reports redeliver's entries on a topic that redeliver does not write: a
// service copied them onward. They are the user's like any others.
func (r *record) strangers() (found []redeliver.Finding) {
	for _, name := range slices.Sorted(maps.Keys(r.metadata)) {
		if name == StateKey || strings.HasPrefix(name, redeliver.HeaderPrefix) {
			found = redeliver.AppendFinding(found, redeliver.Finding{
				Header: name, Value: r.metadata[name],
				Problem: "on a topic that redeliver does not write; it is not believed",
			})
		}
	}
	return found
}
