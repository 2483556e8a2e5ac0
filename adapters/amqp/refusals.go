package amqp

import (
	"errors"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// A message whose ack is refused comes back with the channel. Its handler runs again, or its next copy is written again. If
// the broker takes writes meanwhile, the copies would multiply from queue to queue, because each copy is refused an ack, too.
// So after a refusal a source is cautious: it reads one message, and ends after its ack. If the broker has accepted that
// one, the next source reads as usual. Otherwise it begins after a pause, which grows.
//
// Where there is an order, a cautious source reads as many messages as any other, and begins only the first. With its ack the
// broker sends the next one. If the source had read only that one, it would come back behind those that other channels have
// returned before.

const (
	// firstRefusalPause is the pause after the first cautious source.
	firstRefusalPause = time.Second
	// maxRefusalPause is the longest one. It is also how late a queue is read again when the broker accepts acks again.
	maxRefusalPause = 30 * time.Second
	// maxRefusalTime is how long after the first ack of a channel its end may be a refusal. Later, the broker has accepted
	// others.
	maxRefusalTime = 10 * time.Second
)

// isCautious reports whether the last source that sent an ack was refused it.
func (cfg *queueConfig) isCautious() bool { return cfg.refusals > 0 }

// refusalPause returns the pause before the next source.
func (cfg *queueConfig) refusalPause() time.Duration {
	if cfg.refusals < 2 {
		return 0
	}
	return min(maxRefusalPause, firstRefusalPause<<min(cfg.refusals-2, 10))
}

// countRefusals returns how many sources in a row were refused an ack after s has ended with err. A source that has sent
// none says nothing about that, nor does a lost connection.
func (s *source) countRefusals(err error) int {
	answer, ok := errors.AsType[*amqp091.Error](err)
	switch {
	case s.accepted.Load():
		return 0
	case !ok || !answer.Server || answer.Code == amqp091.ConnectionForced || !s.acked:
		return s.refusals
	case s.refusals == 0 && time.Since(s.firstAck) > maxRefusalTime:
		return 0
	default:
		return s.refusals + 1
	}
}
