// Package crashes counts how often a message has killed its process, as far as RabbitMQ does not.
//
// Suspects have a queue, from which they are fetched one by one. So the broker's delivery count is their number of
// crashes, except for the times that this process has seen the channel end and has survived: engine.SuspectLosses.
//
// A suspect of an ordered queue keeps its place there. The broker's count is no evidence, because it also rises for
// messages that did not run. So a message in another queue has the count: [Counts]. That is raised before the suspect
// runs, and lowered when the process has survived: [Charge].
package crashes

import (
	"context"
	"errors"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
)

// headerCrashes is how often a message has killed its process.
const headerCrashes = "redeliver-amqp-crashes"

// Counts counts how often each message of an ordered queue has killed its process. Each count is a small message in
// another queue, with the id of the counted message as its body.
type Counts struct {
	Queue    string
	Blocking bool // messages run one by one, so the counts of other messages are out of date
	Link     *link.Link
	Sender   *link.Sender
	Declare  func(ctx context.Context, missing error) error // declares the queue again
}

// Update changes the count of a message. It is raised before the message runs, and lowered when the process has
// survived. A process that dies between a write and the ack of the old count leaves both; the higher one counts.
func (c *Counts) Update(ctx context.Context, id string, change func(n int) int) error {
	err := c.rewrite(ctx, id, change)
	if link.IsNotFound(err) || errors.Is(err, link.ErrNoQueue) { // the queue was deleted
		if err = c.Declare(ctx, err); err == nil {
			err = c.rewrite(ctx, id, change)
		}
	}
	return err
}

func (c *Counts) rewrite(ctx context.Context, id string, change func(n int) int) error {
	return c.Link.Do(ctx, func(l *link.Link) error { return c.rewriteOn(ctx, l, id, change) })
}

func (c *Counts) rewriteOn(ctx context.Context, l *link.Link, id string, change func(n int) int) error {
	ch, err := l.Channel(ctx)
	if err != nil {
		return err
	}
	defer ch.Close() // this returns the counts of other messages
	n, old := 0, []uint64(nil)
	for {
		counter, found, err := ch.Get(c.Queue, false)
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
		case c.Blocking:
			old = append(old, counter.DeliveryTag)
		}
	}
	if n = change(n); n > 0 {
		err := c.Sender.Send(ctx, "", c.Queue, amqp091.Publishing{
			Body: []byte(id), DeliveryMode: amqp091.Persistent, Headers: amqp091.Table{headerCrashes: int32(n)},
		})
		if err != nil {
			return err
		}
	}
	for _, tag := range old {
		if err := ch.Ack(tag, false); err != nil {
			return err
		}
	}
	_, err = ch.QueueDeclarePassive(c.Queue, true, false, false, false, nil) // after the answer the broker has the acks
	return err
}

// Charge is one more crash of a message. A failed try to write it may have succeeded, so a repeated try must not
// add another.
type Charge struct {
	Before int // the crashes that the first try found
	known  bool
}

// WasTried reports whether a try may have written the charge.
func (c *Charge) WasTried() bool { return c.known }

// Add returns the crashes of a message that had n.
func (c *Charge) Add(n int) int {
	if !c.known {
		c.Before, c.known = n, true
	}
	return max(n, c.Before+1)
}

// Remove returns the crashes of a message that had n with the charge. Another process may have charged it meanwhile, and
// a failed try may have removed the charge.
func (c *Charge) Remove(n int) int { return min(n, max(c.Before, n-1)) }
