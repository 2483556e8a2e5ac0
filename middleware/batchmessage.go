package middleware

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/mq"
)

// MessageBatch is the argument of a [BatchHandler], and BatchMessage a message of it. The handler need not call Ack of the Watermill
// message; its Nack is an answer.
type (
	MessageBatch = mq.Batch[*message.Message]
	BatchMessage = mq.BatchMessage[*message.Message]
)

// batchWaiter is a message that waits for its answer in a batch. It implements [engine.BatchWaiter].
type batchWaiter struct {
	*message.Message
	batched engine.Batched

	ctx     context.Context // of the message when it came
	err     error
	settled chan struct{} // closed when err is set
}

// SetAnswer implements [engine.BatchWaiter]. It ends the wait of the message's handler.
func (w *batchWaiter) SetAnswer(err error) {
	w.err = err
	close(w.settled)
}

func newMessageBatch(b *engine.Batch, all []*engine.Batched) *MessageBatch {
	return mq.NewBatch(b.Origin, b.Group, b, len(all), func(i int) (*message.Message, context.Context, mq.Answerer) {
		w, _ := all[i].Waiter().(*batchWaiter) // all waiters are
		return w.Message, w.ctx, all[i]
	})
}
