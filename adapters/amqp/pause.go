package amqp

import (
	"context"
	"errors"
	"fmt"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/pausemark"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// Pause pauses the queue of a topic for all processes that read it, until [mq.Operations.Resume]. Nothing new begins, neither
// first attempts nor retries; running attempts continue. Each process stops consuming within 10 s, and returns its
// messages in hand some seconds later. A process that starts later consumes nothing. The reason is shown to others. A
// second Pause replaces it. Pause creates the marker queue if it is missing, unless Config.NoProvisioning is set.
func (c *client) Pause(ctx context.Context, topic, reason string) error {
	return c.writePauseMark(ctx, topic, engine.NewPauseMark(ctx, reason, false))
}

// PauseNew is [mq.Operations.Pause], but retries that fall due continue. With [redeliver.OrderBlocking] and [redeliver.OrderThroughRetries],
// retries wait, too.
func (c *client) PauseNew(ctx context.Context, topic, reason string) error {
	return c.writePauseMark(ctx, topic, engine.NewPauseMark(ctx, reason, true))
}

func (c *client) writePauseMark(ctx context.Context, topic string, mark redeliver.PauseMark) error {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return err
	}
	if err := c.checkPausable(ctx, l); err != nil {
		return err
	}
	origin := topology.Origin{Expires: l.Expires}
	if err := c.broker().CheckOrigin(ctx, l, &origin); err != nil && !errors.Is(err, redeliver.ErrConfig) {
		return err
	}
	if origin.Expires || origin.AutoDelete() {
		return fmt.Errorf("amqp: queue %s cannot be paused: it has x-expires or is auto-delete, and the broker would delete it with its messages, because nobody consumes in a pause", l.Queue)
	}
	err = c.forwarded.Send(ctx, "", l.Paused(), amqp091.Publishing{
		ContentType: "text/plain", DeliveryMode: amqp091.Persistent, Body: []byte(mark.String()),
	})
	if err != nil {
		return fmt.Errorf("amqp: publishing to queue %s: %w", l.Paused(), err)
	}
	return nil
}

// checkPausable refuses a queue that does not exist, and makes sure that the marker queue exists.
func (c *client) checkPausable(ctx context.Context, l *layout.Layout) error {
	d := c.broker().Declarer(ctx)
	defer d.Close()
	var ps check.Problems
	if err := checkExists(d, l.Queue); err != nil {
		return err
	}
	for _, q := range l.Queues {
		if q.Kind == layout.PauseQueue && !d.Exists(&ps, q.Name) { // a declaration needs more rights
			d.DeclareQueue(&ps, q, !c.cfg.NoProvisioning)
		}
	}
	return d.Result(ps)
}

// checkExists returns an error if a queue does not exist, or cannot be seen.
func checkExists(d *topology.Declarer, queue string) error {
	var ps check.Problems
	exists := d.Exists(&ps, queue)
	if err := d.Result(ps); err != nil || exists {
		return err
	}
	return fmt.Errorf("amqp: queue %s does not exist", queue)
}

// Resume ends a pause, also one of a queue that was deleted meanwhile. It does nothing if there is none.
func (c *client) Resume(ctx context.Context, topic string) error {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return err
	}
	existed, err := c.marker(l).Clear(ctx)
	if err != nil || existed {
		return err
	}
	d := c.broker().Declarer(ctx)
	defer d.Close()
	return checkExists(d, l.Queue)
}

// Paused returns by whom, when and why the queue of a topic was paused, or nil.
func (c *client) Paused(ctx context.Context, topic string) (mark *redeliver.PauseMark, err error) {
	l, err := newLayout(&c.cfg, topic)
	if err != nil {
		return nil, err
	}
	return c.marker(l).Mark(ctx)
}

// marker returns the marker queue of a subscription.
func (c *client) marker(l *layout.Layout) pausemark.Queue {
	return pausemark.Queue{Name: l.Paused(), Link: c.consuming}
}
