package amqp

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// declared is what a client has declared, by topic. It is safe for concurrent use.
type declared struct {
	c *client

	mu        sync.Mutex
	layouts   map[string]*layout.Layout
	exchanges map[string]bool // topics whose exchange is declared
	deleted   map[string]bool // topics that had a layout but lost a queue
}

func newDeclared(c *client) declared {
	return declared{c: c, layouts: make(map[string]*layout.Layout), exchanges: make(map[string]bool), deleted: make(map[string]bool)}
}

// all returns all layouts.
func (d *declared) all() []*layout.Layout {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.layouts))
}

// layout returns the layout of a topic. It declares the queues first.
func (d *declared) layout(ctx context.Context, topic string) (*layout.Layout, error) {
	d.mu.Lock()
	l, deleted := d.layouts[topic], d.deleted[topic]
	d.mu.Unlock()
	if d.c.isClosed() {
		return nil, link.ErrClosed
	}
	if l != nil {
		return l, nil
	}
	l, err := newLayout(&d.c.cfg, topic)
	if err != nil {
		return nil, err
	}
	if err := engine.CheckDistinct("amqp", l, slices.Values(d.all())); err != nil {
		return nil, err
	}
	if err := d.check(ctx, l); err != nil {
		return nil, err
	}
	declare := d.provision
	if deleted {
		declare = d.restore
	}
	if err := declare(ctx, l); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := engine.CheckDistinct("amqp", l, maps.Values(d.layouts)); err != nil { // another Subscribe may have been faster
		return nil, err
	}
	d.layouts[topic] = l
	delete(d.deleted, topic)
	return l, nil
}

// unanswered is the detail of the event about a management API that does not answer.
const unanswered = "policies and limits on the queues: the management API does not answer"

// check returns what Plan would refuse, before anything is created. If the management API does not answer, it
// reports that and relies on AMQP alone.
func (d *declared) check(ctx context.Context, l *layout.Layout) error {
	b := d.c.broker()
	s, err := b.Survey(ctx, l)
	if s == nil {
		return err
	}
	if err != nil {
		sub := engine.Subscription{Origin: l.Queue, Group: l.Queue, Sink: d.c.cfg.Sink}
		sub.EmitChange(redeliver.ChangeNotChecked, unanswered, err)
	}
	_, err = b.Verify(ctx, s, false)
	return err
}

// provision declares what a subscription needs.
func (d *declared) provision(ctx context.Context, l *layout.Layout) error {
	by := d.c.broker().Declarer(ctx)
	defer by.Close()
	err := by.Declare(l)
	sub := engine.Subscription{Origin: l.Queue, Group: l.Queue, Sink: d.c.cfg.Sink}
	for _, left := range by.LeftOut {
		sub.EmitChange(redeliver.ChangeSettingRefused, "queue "+left.Queue, left.Err)
	}
	return err
}

// deletionDelay is a generous bound for the time until the broker has cancelled the consumers of a deleted queue. If the
// queue is declared again earlier, RabbitMQ 3.10 takes the new queue's first messages for ones that it has already sent.
// They stay unacked forever.
const deletionDelay = time.Second

// restore declares deleted queues again.
func (d *declared) restore(ctx context.Context, l *layout.Layout) error {
	if err := wait.For(ctx, deletionDelay); err != nil {
		return err
	}
	return d.provision(ctx, l)
}

// exchange makes sure that the exchange of a topic exists.
func (d *declared) exchange(ctx context.Context, topic string) error {
	t := d.c.cfg.Topology
	name := t.exchange(topic)
	if name == "" || t.Existing {
		return nil
	}
	d.mu.Lock()
	done := d.exchanges[topic]
	d.mu.Unlock()
	switch {
	case d.c.isClosed():
		return link.ErrClosed
	case done:
		return nil
	}
	by := d.c.broker().Declarer(ctx)
	defer by.Close()
	var ps check.Problems
	by.DeclareExchange(&ps, name, t.kind())
	if err := by.Result(ps); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exchanges[topic] = true
	return nil
}

// forgetMissing makes the next publish to a topic declare again what was missing. by is the sender that got the error.
func (d *declared) forgetMissing(topic string, by *link.Sender, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if link.IsNotFound(err) {
		delete(d.exchanges, topic) // the exchange
	}
	if errors.Is(err, link.ErrNoQueue) && by == d.c.forwarded {
		delete(d.layouts, topic)
		d.deleted[topic] = true
	}
}
