package wire

import (
	"strconv"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// DeliveryCount returns how often a quorum queue delivered a message before. RabbitMQ 4.3 and later do not count
// returns, but report how often a message was acquired. A classic queue counts nothing, and passes on what a message
// brings.
func DeliveryCount(headers amqp091.Table) (n int, counted bool) {
	switch v := headers["x-delivery-count"].(type) {
	case int64:
		return int(v), true
	case int32:
		return int(v), true
	default:
		_, counted = headers["x-acquired-count"]
		return 0, counted
	}
}

func CopiesOf(headers amqp091.Table) int {
	n, _ := headers[headerCopies].(int32)
	return max(0, int(n))
}

// LeavesAt returns when a message leaves its level for a shorter one. The writer sets it, because a full prefetch
// may delay the delivery.
func LeavesAt(headers amqp091.Table, latest time.Time) time.Time {
	text, _ := headers[HeaderUntil].(string)
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil && at.Before(latest) {
		return at
	}
	return latest
}

// FirstSeen returns when a message with this state was there at the latest: at its timestamp in the origin, which another program may
// have set to any time, or else at its first failure.
func FirstSeen(st *redeliver.State) time.Time {
	at := st.Source.Timestamp
	if !limits.Plausible(at) || !st.FirstFailed.IsZero() && at.After(st.FirstFailed) {
		return st.FirstFailed
	}
	return at
}

// ExpiryOf returns when a message expires: the earlier of the times in its header and its expiration.
func ExpiryOf(d *amqp091.Delivery, seen time.Time) time.Time {
	text, _ := TextOf(d.Headers[redeliver.HeaderExpires])
	named, ok := limits.ParseTime(text)
	if end := expirationEnd(d, seen); !ok || !end.IsZero() && end.Before(named) {
		return end
	}
	return named
}

// expirationEnd returns when a message's own expiration ends. It counts from the publisher's timestamp, which has
// whole seconds, or from when redeliver first saw the message, if the timestamp is later than that or cannot be true.
func expirationEnd(d *amqp091.Delivery, seen time.Time) time.Time {
	life, ok := lifetime(d.Expiration)
	switch {
	case !ok:
		return time.Time{}
	case limits.Plausible(d.Timestamp) && (seen.IsZero() || !d.Timestamp.After(seen)):
		return d.Timestamp.Add(time.Second + life)
	case seen.IsZero():
		return time.Time{}
	default:
		return seen.Add(life)
	}
}

// lifetime parses the expiration of a message.
func lifetime(expiration string) (time.Duration, bool) {
	if expiration == "" { // ParseInt would allocate an error
		return 0, false
	}
	ms, err := strconv.ParseInt(expiration, 10, 64)
	if err != nil || ms < 0 || ms > int64(redeliver.MaxWait/time.Millisecond) {
		return 0, false
	}
	return time.Duration(ms) * time.Millisecond, true
}

// LastDeathQueue returns the queue from which RabbitMQ has dead-lettered a message last, or "". redeliver writes no
// message with x-death.
func LastDeathQueue(headers amqp091.Table) string {
	queue, _ := lastDeath(headers)["queue"].(string)
	return queue
}

func lastDeath(headers amqp091.Table) amqp091.Table {
	deaths, _ := headers["x-death"].([]any)
	if len(deaths) == 0 {
		return nil
	}
	last, _ := deaths[0].(amqp091.Table)
	return last
}

// CameAt returns when a message came to its DLQ: when RabbitMQ dead-lettered it, or when redeliver did after its last
// failure.
func CameAt(headers amqp091.Table) (at time.Time, known bool) {
	if at, known = lastDeath(headers)["time"].(time.Time); known {
		return at, true
	}
	text, _ := TextOf(headers[redeliver.HeaderLastFailed])
	return limits.ParseTime(text)
}
