package loss

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/consumer"
)

// rabbitSystem is the suite's view of RabbitMQ, through amqp091-go alone. RabbitMQ has no keys: a message carries its
// key in a header.
type rabbitSystem struct {
	broker *brokers.Rabbit
	queue  string

	conn      *amqp091.Connection // the writer's
	ch        *amqp091.Channel
	rewritten int // messages whose confirm was lost with a connection, so that they may be there twice

	list []deadLetter // taken from the DLQ
}

const rabbitKey = "key"

// newRabbitMQ prepares a queue on a broker that only the suite uses.
func newRabbitMQ(t *testing.T, own *brokers.Rabbit, queue string) *rabbitSystem {
	t.Helper()
	r := &rabbitSystem{broker: own, queue: queue}
	ch, err := r.channel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.disconnected)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	return r
}

// rabbitPlace returns the position of a message, which contains its message id.
func rabbitPlace(queue, id string) string { return queue + "/" + id }

func (r *rabbitSystem) consumer() consumerConfig {
	return consumerConfig{Broker: "rabbitmq", Addrs: []string{r.broker.URL()}, Topic: r.queue}
}

// channel returns the writer's open channel, or a new one.
func (r *rabbitSystem) channel() (*amqp091.Channel, error) {
	if r.ch != nil && !r.ch.IsClosed() {
		return r.ch, nil
	}
	r.disconnected()
	conn, err := amqp091.Dial(r.broker.URL())
	if err != nil {
		return nil, err
	}
	r.conn = conn
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, err
	}
	r.ch = ch
	return ch, nil
}

func (r *rabbitSystem) disconnected() {
	if r.conn != nil {
		_ = r.conn.Close() // it may be closed already
	}
	r.conn, r.ch = nil, nil
}

func (r *rabbitSystem) write(ctx context.Context, items []*item) error {
	for {
		items = r.tryWrite(ctx, items)
		if len(items) == 0 {
			return nil
		}
		if !consumer.Pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("writing to %s: %w", r.queue, context.Cause(ctx))
		}
	}
}

// tryWrite returns the items that were not confirmed.
func (r *rabbitSystem) tryWrite(ctx context.Context, items []*item) []*item {
	ch, err := r.channel()
	if err != nil {
		return items
	}
	confirms := make([]*amqp091.DeferredConfirmation, 0, len(items))
	for _, it := range items {
		confirm, err := ch.PublishWithDeferredConfirm("", r.queue, true, false, r.publishing(it))
		if err != nil {
			break
		}
		confirms = append(confirms, confirm)
	}
	left := slices.Clone(items[len(confirms):])
	for i, confirm := range confirms {
		it := items[i]
		if acked, err := confirm.WaitContext(ctx); err != nil || !acked {
			r.rewritten++
			left = append(left, it)
			continue
		}
		it.place, it.at = rabbitPlace(r.queue, it.id), time.Now()
	}
	return left
}

// publishing gives every message a message id. It is redeliver's id if there is no UUID.
func (r *rabbitSystem) publishing(it *item) amqp091.Publishing {
	p := amqp091.Publishing{
		Body: it.value, MessageId: rabbitPlace(r.queue, it.id), DeliveryMode: amqp091.Persistent,
		Headers: amqp091.Table{rabbitKey: it.key},
	}
	for _, h := range it.headers {
		var v any
		switch {
		case rabbitText(h.key):
			v = string(h.value)
		case h.value != nil:
			v = h.value
		}
		if before, ok := p.Headers[h.key]; ok { // a name appears once in a table
			v = []any{before, v}
		}
		p.Headers[h.key] = v
	}
	return p
}

// rabbitText reports whether a header is text. The others are bytes.
func rabbitText(name string) bool {
	return name == headerID || name == headerRule || name == headerAfter || name == "_watermill_message_uuid"
}

// dead takes new messages from the DLQ and remembers them. It returns all messages that ever were there. No broker dies
// meanwhile.
func (r *rabbitSystem) dead(ctx context.Context) ([]deadLetter, error) {
	ch, err := r.channel()
	if err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, ok, err := ch.Get(r.queue+".dlq", false)
		if err != nil {
			return nil, fmt.Errorf("reading %s.dlq: %w", r.queue, err)
		}
		if !ok {
			return r.list, nil
		}
		r.list = append(r.list, r.deadLetterOf(&d))
		if err := d.Ack(false); err != nil {
			return nil, fmt.Errorf("taking from %s.dlq: %w", r.queue, err)
		}
	}
}

// deadLetterOrder is the order of the headers of an item.
var deadLetterOrder = []string{headerID, headerRule, headerAfter, "twice", "null", "empty", "_watermill_message_uuid"}

func (r *rabbitSystem) deadLetterOf(d *amqp091.Delivery) deadLetter {
	l := deadLetter{value: d.Body, meta: make(map[string]string)}
	headers := maps.Clone(d.Headers)
	delete(headers, "x-delivery-count") // counts the reads from there
	for name, v := range headers {
		if short, ok := strings.CutPrefix(name, "redeliver-"); ok {
			l.meta[short] = fmt.Sprint(v)
			delete(headers, name)
		}
	}
	l.id, _ = headers[headerID].(string)
	l.key, _ = headers[rabbitKey].([]byte)
	delete(headers, rabbitKey)
	for _, name := range slices.Concat(deadLetterOrder, slices.Sorted(maps.Keys(headers))) {
		v, ok := headers[name]
		if !ok {
			continue
		}
		delete(headers, name)
		several, ok := v.([]any)
		if !ok {
			several = []any{v}
		}
		for _, v := range several {
			l.headers = append(l.headers, header{name, rabbitValue(name, v)})
		}
	}
	l.place = d.MessageId
	if m := l.meta; m["amqp-exchange"] != "" || m["amqp-routing-key"] != r.queue || m["origin"] != r.queue || m["group"] != r.queue {
		l.place = fmt.Sprintf("%s with %v", d.MessageId, m)
	}
	return l
}

// rabbitValue returns a header's value, or a description if its type has changed.
func rabbitValue(name string, v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if rabbitText(name) {
			return []byte(v)
		}
	case []byte:
		if !rabbitText(name) {
			return v
		}
	}
	return fmt.Appendf(nil, "%T %v", v, v)
}

// unsettled counts the messages in all queues except the DLQ. The broker has no other group.
func (r *rabbitSystem) unsettled(ctx context.Context) (int64, string, error) {
	return brokerstate.RabbitMQ(ctx, r.broker, r.queue)
}

// restart kills the broker and starts it again. By now all queues are declared.
func (r *rabbitSystem) restart(ctx context.Context, down time.Duration) error {
	if err := r.broker.Settle(ctx); err != nil {
		return err
	}
	if err := r.broker.Kill(); err != nil {
		return err
	}
	if !consumer.Pause(ctx, down) { // the planned time without a broker
		return ctx.Err()
	}
	return r.broker.Start(ctx)
}

// disconnect makes the broker close the connections of all clients.
func (r *rabbitSystem) disconnect(ctx context.Context) error {
	return r.broker.CloseAllConnections(ctx, "for a test")
}
