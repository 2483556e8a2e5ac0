package amqp

import (
	"github.com/redeliver/redeliver/internal/deadletter/driver"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Rights are what RabbitMQ must allow a user: names of queues and exchanges, for the
// three patterns of rabbitmqctl set_permissions.
type Rights struct{ Configure, Write, Read []string }

// defaultExchange is the name of the default exchange in permissions.
const defaultExchange = "amq.default"

// rights returns the rights of a subscriber. It reads the queue, the retry queue, the suspects and the short levels,
// and writes through the default exchange.
func (l *layout) rights() Rights {
	r := Rights{Write: []string{defaultExchange}, Read: []string{l.queue}}
	for _, q := range l.queues {
		if q.isRead() {
			r.Read = append(r.Read, q.name)
		}
	}
	return r
}

// operatorRights returns the rights of a person who works on the DLQ and pauses the subscription. Apart from the DLQ and its state, these include
// the locks, which are declared for each session.
func (l *layout) operatorRights() Rights {
	state := l.dlq() + wirename.StateSuffix
	r := Rights{Write: []string{defaultExchange}, Read: []string{l.dlq(), state, l.paused()}}
	for _, fence := range []string{driver.ClaimLock, driver.ReadLock, turnLock} {
		r.Configure = append(r.Configure, state+"."+fence)
	}
	return r
}
