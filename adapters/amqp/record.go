package amqp

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/statekeys"
	"github.com/redeliver/redeliver/internal/wirename"
)

// record is a delivery as the handler sees it first: without redeliver's headers, and with the original exchange,
// routing key and properties. Only the source acks it.
type record struct {
	amqp091.Delivery
	unread    error  // why its headers could not be read
	raw       []byte // the unreadable headers, unless they are too long
	marshaler Marshaler
	keys      statekeys.Keys
	copies    int    // see headerCopies
	part      string // see headerPart
	key       string // if the Order is PerKey
	rewritten int    // how often it was rewritten before it came
	// Of a message that is read from a DLQ: the state that it had there, and its delivery there, which copies keep.
	deadLetter *redeliver.State
	copied     *amqp091.Delivery
}

// own returns the delivery that copies are made of.
func (r *record) own() *amqp091.Delivery {
	if r.copied != nil {
		return r.copied
	}
	return &r.Delivery
}

// stateID returns the message's id. A message that is read from a DLQ has the one of the DLQ's state.
func (r *record) stateID() string {
	if r.deadLetter != nil && r.deadLetter.ID != "" {
		return r.deadLetter.ID
	}
	return idOf(&r.Delivery)
}

// readDeadLetter removes redeliver's headers of a DLQ from a message that is read from there, and restores what they
// replace. It ignores headers that name another DLQ.
func (r *record) readDeadLetter(queue string, names Names) []redeliver.Finding {
	if _, ours := r.Headers[redeliver.HeaderGroup]; !ours || r.unread != nil || !verify(r.keys, &r.Delivery) {
		return nil
	}
	if from := lastDeathQueue(r.Headers); from != "" && names.dlq(from) == queue {
		delete(r.Headers, redeliver.HeaderGroup) // RabbitMQ moved it here with its producer's headers; its copies have no x-death
		return nil
	}
	shown := r.Delivery
	block, findings := restoreOriginal(&shown)
	dead, found := engine.DeadLetterState(block, func(origin, group string) bool {
		return origin == group && names.dlq(origin) == queue
	})
	if dead == nil {
		return nil
	}
	lay := r.Delivery
	r.deadLetter, r.copied, r.Delivery = dead, &lay, shown
	return append(findings, found...)
}

// message makes the Watermill message for a Router's handler.
func (r *record) message() (*message.Message, error) {
	if r.unread != nil {
		return nil, r.unread
	}
	return engine.Unmarshal(r.marshaler, &r.Delivery)
}

// Get implements [redeliver.Headers]. It returns a header as text, or "".
func (r *record) Get(name string) string {
	text, _ := textOf(r.Headers[name])
	return text
}

// DeliveryFromContext returns the delivery behind the message whose handler got ctx, as it first
// came from its queue: properties, headers of every type, exchange and routing key. It is nil for a
// context of another message. It must be neither changed nor acked.
func DeliveryFromContext(ctx context.Context) *amqp091.Delivery {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*delivery); ok {
			return &r.Delivery
		}
	}
	return nil
}

// idOf returns the id of a delivery: Watermill's UUID, the message id, or a hash of the message, marked as derived.
// It hashes an id that does not fit into a header.
func idOf(d *amqp091.Delivery) string {
	if uuid, ok := d.Headers[UUIDHeader].(string); ok && uuid != "" {
		return engine.GivenID(uuid)
	}
	if d.MessageId != "" {
		return engine.GivenID(d.MessageId)
	}
	return wirename.DerivedID + digest(d)
}

// digest returns a hash of the publisher's part. Equal messages share it.
func digest(d *amqp091.Delivery) string {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		_, _ = h.Write(n[:]) // a hash never fails
		_, _ = h.Write(b)
	}
	for _, s := range []string{d.Exchange, d.RoutingKey, d.ContentType, d.CorrelationId, d.Type, d.AppId} {
		part([]byte(s))
	}
	var at [8]byte
	if !d.Timestamp.IsZero() {
		binary.BigEndian.PutUint64(at[:], uint64(d.Timestamp.Unix()))
	}
	part(at[:])
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		if isBrokerHeader(name) {
			continue
		}
		part([]byte(name))
		part(fmt.Append(nil, portableValue(d.Headers[name]))) // fmt prints maps in order
	}
	part(d.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// portableValue returns a header's value in a form that every process prints the same, because times depend on the
// host's zone.
func portableValue(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.Unix()
	case amqp091.Table:
		t := make(amqp091.Table, len(v))
		for name, item := range v {
			t[name] = portableValue(item)
		}
		return t
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = portableValue(item)
		}
		return items
	default:
		return v
	}
}
