package amqp

import (
	"context"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
)

// openChannel is a channel and its deliveries, which are nil for suspects, because those are fetched.
type openChannel struct {
	ch *amqp091.Channel
	in <-chan amqp091.Delivery
}

// openFirstChannels opens the first channel of every queue, the origins last. If the user may not read a queue, it
// returns an error instead of retrying forever. Other errors are retried later. Messages that a refused start has
// fetched come back with a raised count, so it fetches as few as possible.
func (c *client) openFirstChannels(ctx context.Context, readers ...*reader) error {
	d := c.broker().Declarer(ctx)
	defer d.Close()
	if len(readers) > 1 { // a single origin is refused before it is read
		for _, r := range readers {
			d.CheckRead(r.layout.Queue)
		}
	}
	for _, r := range readers {
		r.openFirst(ctx, d, false)
	}
	if !d.DeniesRead() { // otherwise the start fails, and this would fetch messages
		for _, r := range readers {
			r.openFirst(ctx, d, true)
		}
	}
	err := d.Refusal(nil)
	if err != nil {
		for _, r := range readers {
			r.close()
		}
	}
	return err
}

// openFirst opens the first channel of the origin, or of all other queues. After a denial or in a pause, it only
// checks rights.
func (r *reader) openFirst(ctx context.Context, d *topology.Declarer, origin bool) {
	for i := range r.queues {
		cfg := &r.queues[i]
		if (cfg.kind == layout.MainQueue) != origin {
			continue
		}
		if d.DeniesRead() || r.mustWait(*cfg) {
			if cfg.kind != layout.SuspectQueue { // open does not check this right
				d.CheckRead(cfg.queue)
			}
			continue
		}
		ch, in, err := r.open(ctx, cfg)
		if err == nil {
			cfg.first = &openChannel{ch, in}
		} else {
			d.AddReadDenial(cfg.queue, err)
		}
	}
}

// close closes channels that no source has used.
func (r *reader) close() {
	for i := range r.queues {
		if first := r.queues[i].first; first != nil {
			_ = first.ch.Close() // nothing was acked on it
			r.queues[i].first = nil
		}
	}
}

// open returns the first channel, or opens another one.
func (r *reader) open(ctx context.Context, cfg *queueConfig) (*amqp091.Channel, <-chan amqp091.Delivery, error) {
	if first := cfg.first; first != nil {
		cfg.first = nil
		return first.ch, first.in, nil
	}
	ch, err := r.client.consuming.Channel(ctx)
	if err != nil {
		return nil, nil, err
	}
	var in <-chan amqp091.Delivery
	if cfg.kind == layout.SuspectQueue { // they are fetched one by one
		_, err = ch.QueueDeclarePassive(cfg.queue, true, false, false, false, nil)
		err = link.DescribeDenial(link.MethodDeclare, cfg.queue, err)
	} else {
		in, err = link.StartConsumer(ch, cfg.queue, link.ConsumerTag, cfg.firstWindow(r.client.cfg.RetryBytes))
	}
	if err != nil {
		_ = ch.Close() // it may be closed already
		return nil, nil, err
	}
	return ch, in, nil
}

// reservedChannels is the number of channels of the reading connection that are reserved for declarations.
const reservedChannels = 8

// claimChannels reserves a channel of the reading connection for each queue. A broker allows 2,047 by default.
func (r *reader) claimChannels() error {
	n, maxChannels := r.countChannels(), r.client.consuming.ChannelMax()-reservedChannels
	if used := int(r.client.channels.Add(int32(n))); used > maxChannels {
		r.releaseChannels()
		return fmt.Errorf("amqp: subscribing to %s takes %d channels, one for each queue that is read, and %d of the connection's %d are in use: "+
			"raise the broker's channel_max, use another Client, or fewer levels", r.layout.Queue, n, used-n, maxChannels)
	}
	return nil
}

func (r *reader) releaseChannels() { r.client.channels.Add(-int32(r.countChannels())) }

// countChannels returns how many channels the reader reads with: one for each queue, and one for notes.
func (r *reader) countChannels() int {
	if r.layout.Ordered() {
		return len(r.queues) + 1
	}
	return len(r.queues)
}
