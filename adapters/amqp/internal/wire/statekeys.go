package wire

import (
	"maps"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// signed returns the signed text: redeliver's headers without the signature.
func signed(headers amqp091.Table) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) && name != HeaderMAC {
			b.WriteString(name + "\x00" + string(HeaderBytes(headers[name])) + "\x00")
		}
	}
	return b.String()
}

// Sign sets the signature of a message with a state. Its headers must not change afterwards.
func Sign(keys statekeys.Keys, p *amqp091.Publishing) {
	if _, ok := p.Headers[HeaderMAC]; ok && len(keys) > 0 {
		p.Headers[HeaderMAC] = keys.Sign(signed(p.Headers), p.Body)
	}
}

// verify reports whether redeliver's headers of a delivery were signed with one of the keys.
func verify(keys statekeys.Keys, d *amqp091.Delivery) bool {
	if len(keys) == 0 {
		return true
	}
	mac, _ := d.Headers[HeaderMAC].(string)
	return keys.Verify(mac, signed(d.Headers), d.Body)
}

// StripUnsigned removes redeliver's headers from a delivery of one of its queues if none of the keys has signed them,
// and reports them.
func StripUnsigned(keys statekeys.Keys, d *amqp091.Delivery) []redeliver.Finding {
	if verify(keys, d) {
		return nil
	}
	found := ForeignHeaders(d.Headers, "is not signed with a key of StateKeys; it is not believed")
	maps.DeleteFunc(d.Headers, func(name string, _ any) bool { return strings.HasPrefix(name, redeliver.HeaderPrefix) })
	return found
}
