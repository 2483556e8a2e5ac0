package amqp

import "github.com/redeliver/redeliver/internal/deadletter/driver"

// Rights are what RabbitMQ must allow a user: names of queues and exchanges, for the
// three patterns of rabbitmqctl set_permissions.
type Rights struct{ Configure, Write, Read []string }

// defaultExchange is what the default exchange is called where rights are asked for.
const defaultExchange = "amq.default"

// rights are a subscriber's: it reads the queue, what comes back, and the short
// levels, and writes through the default exchange.
func (l *layout) rights() Rights {
	r := Rights{Write: []string{defaultExchange}, Read: []string{l.queue}}
	for _, q := range l.queues {
		if q.isRead() {
			r.Read = append(r.Read, q.name)
		}
	}
	return r
}

// operatorRights are those of who works on the DLQ: beside that and its state he
// declares the fences, which are there for as long as he is.
func (l *layout) operatorRights() Rights {
	state := l.dlq() + stateSuffix
	r := Rights{Write: []string{defaultExchange}, Read: []string{l.dlq(), state}}
	for _, fence := range []string{driver.ClaimLock, driver.LookLock, turnLock} {
		r.Configure = append(r.Configure, state+"."+fence)
	}
	return r
}
