package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wirename"
)

// IDOf returns the id of a delivery: Watermill's UUID, the message id, or a hash of the message, marked as derived.
// It hashes an id that does not fit into a header.
func IDOf(d *amqp091.Delivery) string {
	if uuid, ok := d.Headers[wirename.WatermillUUID].(string); ok && uuid != "" {
		return engine.GivenID(uuid)
	}
	if d.MessageId != "" {
		return engine.GivenID(d.MessageId)
	}
	return wirename.DerivedID + Digest(d)
}

// Digest returns a hash of the publisher's part. Equal messages share it.
func Digest(d *amqp091.Delivery) string {
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
		if IsBrokerHeader(name) {
			continue
		}
		part([]byte(name))
		part(fmt.Append(nil, replaceTimes(d.Headers[name], func(t time.Time) any { return t.Unix() }))) // fmt prints maps in order
	}
	part(d.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
