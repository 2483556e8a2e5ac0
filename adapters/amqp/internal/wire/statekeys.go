package wire

import (
	"maps"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// signed returns the signed text: redeliver's headers without the signature, with their types. Any other headers have another text.
func signed(headers amqp091.Table) string {
	ours := make(amqp091.Table)
	for name, v := range headers {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) && name != HeaderMAC {
			ours[name] = v
		}
	}
	return DescribeValue(ours)
}

// Sign sets the signature of a message with a state for a place. Its headers must not change afterwards.
func Sign(keys statekeys.Keys, at statekeys.Place, p *amqp091.Publishing) {
	if _, ok := p.Headers[HeaderMAC]; ok && len(keys) > 0 {
		p.Headers[HeaderMAC] = keys.Sign(at, signed(p.Headers), p.Body)
	}
}

// verify reports whether redeliver's headers of a delivery were signed with one of the keys for a place.
func verify(keys statekeys.Keys, at statekeys.Place, d *amqp091.Delivery) bool {
	if len(keys) == 0 {
		return true
	}
	mac, _ := d.Headers[HeaderMAC].(string)
	return keys.Verify(mac, at, signed(d.Headers), d.Body)
}

// StripUnsigned removes redeliver's headers from a delivery of one of its queues if none of the keys has signed them
// for this place, and reports them.
func StripUnsigned(keys statekeys.Keys, at statekeys.Place, d *amqp091.Delivery) []redeliver.Finding {
	if verify(keys, at, d) {
		return nil
	}
	found := ForeignHeaders(d.Headers, "is not signed with a key of StateKeys; it is not believed")
	maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
	return found
}
