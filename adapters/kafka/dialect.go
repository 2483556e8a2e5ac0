package kafka

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// translated writes a dead letter that says in another's header names, too, what
// happened. They stand in our own block, behind what we write there: whoever reads the
// DLQ by a name finds the last of it, and split cuts them off with the rest, so that they
// are never taken for the user's.
func (f *forwarder) translated(ctx context.Context, topic string, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	var handler, subscriber string
	if ran := d.Ran(); ran != nil {
		handler, subscriber = message.HandlerNameFromCtx(ran), message.SubscriberNameFromCtx(ran)
	}
	where, err := f.writeWith(ctx, topic, d, st, f.dialect.Append(nil, st, handler, subscriber))
	if errors.Is(err, delayqueue.ErrRefused) || errors.Is(err, delayqueue.ErrDoubtful) {
		return f.write(ctx, topic, d, st)
	}
	return where, err
}

func appendHeaders(m *sarama.ProducerMessage, more []deadletter.Header) {
	for _, h := range more {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
	}
}
