package amqp

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// broadcastReader is one Subscribe of a Broadcast.
type broadcastReader struct {
	b     *Broadcast
	topic string
	sub   *delayqueue.Subscription
	air   *delayqueue.Broadcast
	ch    *amqp.Channel // the last; of the one goroutine that reads
}

func (b *Broadcast) reader(ctx context.Context, topic string) *broadcastReader {
	r := &broadcastReader{b: b, topic: topic, sub: &delayqueue.Subscription{
		Origin: topic, Policy: b.policy, Sink: b.cfg.Sink, Tracer: b.cfg.Tracer, MaxInFlight: b.cfg.MaxInFlight,
	}}
	r.air = delayqueue.NewBroadcast(ctx, r.sub)
	return r
}

// open declares a queue that nobody else has, binds it, and begins to read it. What
// it has declared is gone when it fails.
func (r *broadcastReader) open(ctx context.Context) (<-chan amqp.Delivery, error) {
	t := r.b.cfg.Topology
	queue := r.topic + ".broadcast." + strings.ToLower(rand.Text())
	d := &declarer{open: func() (*amqp.Channel, error) { return r.b.link.channel(ctx) }}
	var ps redeliver.Problems
	if !t.Existing {
		d.exchange(&ps, t.exchange(r.topic), t.kind())
	}
	refused := d.do(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, false, true, true, false, t.QueueArgs)
		return err
	})
	if refused != nil {
		ps.Add("queue "+queue, refused.Code, "cannot be declared; the broker says: "+refused.Reason)
	}
	for _, key := range t.bindingKeys(r.topic) {
		if len(ps) > 0 {
			break // a refusal has closed the channel, and perhaps the queue is not there
		}
		if refused := d.do(func(ch *amqp.Channel) error {
			return ch.QueueBind(queue, key, t.exchange(r.topic), false, t.BindingArgs)
		}); refused != nil {
			ps.Add("binding to exchange "+t.exchange(r.topic), key, "the broker says: "+refused.Reason)
		}
	}
	var in <-chan amqp.Delivery
	refused = d.do(func(ch *amqp.Channel) (err error) {
		if len(ps) == 0 {
			in, err = read(ch, queue, 0, r.b.cfg.MaxInFlight)
		}
		return err
	})
	if refused != nil {
		ps.Add("queue "+queue, refused.Code, "cannot be read; the broker says: "+refused.Reason)
	}
	err := d.err
	if err == nil {
		err = ps.Err()
	}
	if err != nil {
		_ = d.do(func(ch *amqp.Channel) error { // where the connection is gone, so is the queue
			_, err := ch.QueueDelete(queue, false, false, false)
			return err
		})
		d.close()
		return nil, fmt.Errorf("amqp: a broadcast consumer of %s: %w", r.topic, err)
	}
	r.ch = d.ch
	return in, nil
}

// run reads until ctx ends, then waits for what is in hand.
func (r *broadcastReader) run(ctx context.Context, in <-chan amqp.Delivery) {
	r.tell("consuming", "a queue of this process, as a broadcast consumer", nil)
	r.air.Run(ctx, r.b.cfg.DrainTimeout, func(ctx context.Context) { r.keep(ctx, in) })
	_ = r.ch.Close() // the queue goes with it, and all that is on it
}

// keep reads a queue, and another one, bound anew, whenever that is gone.
func (r *broadcastReader) keep(ctx context.Context, in <-chan amqp.Delivery) {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for {
		began := time.Now()
		closed := r.ch.NotifyClose(make(chan *amqp.Error, 1))
		if !r.read(ctx, in) {
			return
		}
		var err error = amqp.ErrClosed
		select {
		case why := <-closed:
			if why != nil {
				err = why
			}
		default: // the queue was deleted
			_ = r.ch.Close() // nothing is read there any more
		}
		r.tell("disconnected", "what is published until there is another queue is missed", err)
		if time.Since(began) > 10*time.Second {
			pause.Reset()
		}
		for err != nil {
			timer := time.NewTimer(pause.NextBackOff())
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			in, err = r.open(ctx)
		}
		r.tell("consuming", "another queue of this process", nil)
	}
}

// read hands on what comes until the channel ends. It is false when ctx has ended
// before.
func (r *broadcastReader) read(ctx context.Context, in <-chan amqp.Delivery) bool {
	for {
		select {
		case d, ok := <-in:
			if !ok {
				return ctx.Err() == nil
			}
			if !r.take(ctx, d) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// take hands on a delivery. It is false when ctx has ended before.
func (r *broadcastReader) take(ctx context.Context, d amqp.Delivery) bool {
	ch, tag := r.ch, d.DeliveryTag
	raw, unread := unreadable(&d)
	rec := &record{Delivery: d, unread: unread, raw: raw, marshaler: r.b.cfg.Marshaler}
	rec.Acknowledger, rec.DeliveryTag, rec.ConsumerTag = nil, 0, "" // it is not the handler's to ack
	a := delayqueue.Aired{Record: rec, ID: idOf(&rec.Delivery), Done: func(settled bool) {
		if settled {
			_ = ch.Ack(tag, false) // where the channel is gone, so is the queue
		}
	}}
	a.Source.Timestamp = d.Timestamp
	if found := strangers(rec.Headers); found != nil {
		r.sub.Tell(redeliver.HeadersIgnored{Topic: r.topic, ID: a.ID, Findings: found})
	}
	return r.air.Deliver(ctx, &a)
}

func (r *broadcastReader) tell(change, detail string, err error) {
	r.sub.Tell(redeliver.SubscriptionChanged{Origin: r.topic, Change: change, Detail: detail, Err: err})
}
