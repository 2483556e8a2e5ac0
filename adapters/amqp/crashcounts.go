package amqp

import (
	"context"
	"errors"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// headerCrashes is how often a message has killed its process.
const headerCrashes = "redeliver-amqp-crashes"

// updateCrashCount changes the number of times that an ordered message has killed its process. Its queue has no
// usable count. The count is a small message in a queue beside it, with the id as its body. It is raised before the
// message runs, and lowered when the process has survived. A process that dies between a write and the ack of the old
// count leaves both; the higher one counts.
func (r *reader) updateCrashCount(ctx context.Context, id string, change func(n int) int) error {
	err := r.rewriteCrashCount(ctx, id, change)
	if isNotFound(err) { // the queue was deleted
		if err = r.store.declare(ctx); err == nil {
			err = r.rewriteCrashCount(ctx, id, change)
		}
	}
	return err
}

func (r *reader) rewriteCrashCount(ctx context.Context, id string, change func(n int) int) error {
	ch, err := r.client.consuming.channel(ctx)
	if err != nil {
		return err
	}
	defer ch.Close() // this returns the counts of other messages
	n, old := 0, []uint64(nil)
	for {
		counter, found, err := ch.Get(r.layout.place(), false)
		if err != nil {
			return err
		}
		if !found {
			break
		}
		switch crashes, _ := counter.Headers[headerCrashes].(int32); {
		case string(counter.Body) == id:
			n = max(n, int(crashes))
			old = append(old, counter.DeliveryTag)
		case r.layout.policy.Order == redeliver.Blocking: // messages run one by one, so the other one was settled
			old = append(old, counter.DeliveryTag)
		}
	}
	if n = change(n); n > 0 {
		if err := r.writeCrashCount(ctx, id, n); err != nil {
			return err
		}
	}
	for _, tag := range old {
		if err := ch.Ack(tag, false); err != nil {
			return err
		}
	}
	_, err = ch.QueueDeclarePassive(r.layout.place(), true, false, false, false, nil) // after the answer the broker has the acks
	return err
}

func (r *reader) writeCrashCount(ctx context.Context, id string, crashes int) error {
	_, err := r.store.sender.send(ctx, "", r.layout.place(), amqp091.Publishing{
		Body: []byte(id), DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{headerCrashes: int32(crashes)},
	})
	if errors.Is(err, errNoQueue) { // same error as from a missing queue that is read
		err = &amqp091.Error{Code: amqp091.NotFound, Reason: err.Error(), Server: true}
	}
	return err
}
