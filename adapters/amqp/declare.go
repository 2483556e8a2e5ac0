package amqp

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// declare makes sure that every queue, exchange and binding is there. All
// problems are in one error.
func (c *Client) declare(d *declarer, l *layout) error {
	var ps redeliver.Problems
	for _, q := range l.queues {
		d.queue(&ps, q, !c.cfg.NoProvisioning)
	}
	t := c.cfg.Topology
	// A queue that exists is the user's, whatever its arguments.
	if exists := d.exists(&ps, l.queue); !exists && t.Existing {
		addMissingOrigin(&ps, d, l)
	} else if !exists {
		d.queue(&ps, l.originQueue(t), true)
	}
	if exchange := t.exchange(l.topic); exchange != "" && !t.Existing {
		d.bind(&ps, t, l.topic)
	}
	if d.err != nil {
		return d.err
	}
	d.rights.problems(&ps)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	return nil
}

// declarer declares queues, each on a channel that an error has not closed.
type declarer struct {
	open   func() (*amqp091.Channel, error)
	ch     *amqp091.Channel
	err    error // the connection's; nothing goes any more
	rights rights
}

func (d *declarer) channel() (ch *amqp091.Channel, ok bool) {
	if d.err == nil && (d.ch == nil || d.ch.IsClosed()) {
		d.ch, d.err = d.open()
	}
	return d.ch, d.err == nil
}

func (d *declarer) close() {
	if d.ch != nil {
		_ = d.ch.Close() // it is closed already, or its connection is gone
	}
}

// run calls what and says what the broker had against it. A broker in trouble is asked
// again: under load the members of a new quorum queue may not find each other in time,
// and a queue that two declare at once cannot be reached by one of them for a moment.
// It is not asked often, because the first of these answers closes the connection, which
// gives back what its consumers hold.
func (d *declarer) run(what func(*amqp091.Channel) error) (refused *amqp091.Error) {
	return d.runRetrying(what, backoff.WithMaxRetries(backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second)), 3))
}

// runOnce is do for what must not be done again, because the first time may have worked.
func (d *declarer) runOnce(what func(*amqp091.Channel) error) (refused *amqp091.Error) {
	return d.runRetrying(what, &backoff.StopBackOff{})
}

func (d *declarer) runRetrying(what func(*amqp091.Channel) error, again backoff.BackOff) (refused *amqp091.Error) {
	trouble := backoff.Retry(func() error {
		refused = nil
		ch, ok := d.channel()
		if !ok {
			return nil
		}
		err := what(ch)
		answer, ok := errors.AsType[*amqp091.Error](err)
		switch {
		case err == nil:
		case ok && isUnreachable(answer):
			refused = answer
			return err
		case ok && answer.Code == amqp091.InternalError:
			return err
		// A connection that an administrator or a broker that stops has closed says nothing
		// of the queue.
		case ok && answer.Server && answer.Code != amqp091.ConnectionForced:
			refused = answer
		default:
			d.err = fmt.Errorf("amqp: declaring queues: %w", err)
		}
		return nil
	}, again)
	if trouble != nil && refused == nil {
		d.err = fmt.Errorf("amqp: declaring queues: %w", trouble)
	}
	return refused
}

// exists reports whether a queue is there.
func (d *declarer) exists(ps *redeliver.Problems, name string) bool {
	refused := d.run(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	switch {
	case refused == nil:
		return d.err == nil
	case isNotFound(refused):
		return false
	case refused.Code == amqp091.ResourceLocked:
		ps.Add("queue "+name, "exclusive", "must not be exclusive to another connection: its retries would outlive it")
		return true
	default:
		ps.Add("queue "+name, refused.Code, "the broker says: "+refused.Reason)
		return true
	}
}

// queue declares a queue, or, where that is not wanted, looks that it is there.
func (d *declarer) queue(ps *redeliver.Problems, q ownQueue, create bool) {
	if !create {
		if !d.exists(ps, q.name) {
			addMissing(ps, d, q)
		}
		return
	}
	refused := d.run(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(q.name, true, false, false, false, q.args)
		return err
	})
	if existing, ok := q.withExistingTTL(refused); ok {
		d.queue(ps, existing, true)
		return
	}
	switch {
	case refused == nil:
	case isAccessRefused(refused) && strings.Contains(refused.Reason, "exchange"): // to which it would dead-letter
		d.rights.write.add("queue "+q.name+"'s dead-letter exchange", refused)
	case isAccessRefused(refused): // to declare it, or, because it dead-letters, to read it
		before := len(d.rights.configure.targets)
		if d.checkConfigure(q.name); len(d.rights.configure.targets) == before {
			d.rights.read.add(q.name, refused)
		}
	case refused.Code == amqp091.PreconditionFailed:
		ps.Add("queue "+q.name, "declared otherwise", fmt.Sprintf(
			"must have the arguments %s; the broker says: %s. Delete it when it is empty, or give ours other Names", argsText(q.args), refused.Reason))
	default:
		ps.Add("queue "+q.name, refused.Code, "cannot be declared; the broker says: "+refused.Reason)
	}
}

func addMissing(ps *redeliver.Problems, d *declarer, q ownQueue) {
	if d.err == nil {
		ps.Add("queue "+q.name, "missing", "must exist: NoProvisioning is set. Declare it durable with the arguments "+argsText(q.args))
	}
}

func addMissingOrigin(ps *redeliver.Problems, d *declarer, l *layout) {
	if d.err == nil {
		ps.Add("queue "+l.queue, "missing", "must exist: the topology is of existing queues. Declare it, or use another Topology")
	}
}

// inspectQueues says what declare would say, and whether each queue is there, without
// creating anything. Queues that were refused already are passed over. With rights
// it looks at those too of which a subscriber hears when it declares and reads.
func (c *Client) inspectQueues(d *declarer, l *layout, ps *redeliver.Problems, refused map[string]bool, rights bool) (there map[string]bool) {
	there = make(map[string]bool)
	for _, q := range l.queues {
		before := len(*ps)
		there[q.name] = d.exists(ps, q.name)
		creates := !there[q.name] && !c.cfg.NoProvisioning
		switch {
		case !there[q.name] && c.cfg.NoProvisioning:
			addMissing(ps, d, q)
		case there[q.name] && len(*ps) == before && !c.cfg.NoProvisioning && !refused[q.name]:
			d.queue(ps, q, true) // it is there: this compares its arguments
		case creates && rights:
			d.checkConfigure(q.name)
		}
		// Only who may read a queue may declare one that dead-letters.
		if rights && (q.isRead() || creates && q.kind != deadQueue) {
			d.checkRead(q.name)
		}
	}
	there[l.queue] = d.exists(ps, l.queue)
	switch {
	case there[l.queue]:
	case c.cfg.Topology.Existing:
		addMissingOrigin(ps, d, l)
	case rights:
		d.checkConfigure(l.queue)
	}
	if rights {
		d.checkRead(l.queue)
	}
	return there
}

// bind declares the exchange of a topic and binds the topic's queue to it.
func (d *declarer) bind(ps *redeliver.Problems, t Topology, topic string) {
	exchange := t.exchange(topic)
	if !d.exchange(ps, exchange, t.kind()) {
		return
	}
	for _, key := range t.bindingKeys(topic) {
		refused := d.run(func(ch *amqp091.Channel) error {
			return ch.QueueBind(t.queue(topic), key, exchange, false, t.BindingArgs)
		})
		if refused != nil {
			ps.Add("binding of queue "+t.queue(topic), key, "the broker says: "+refused.Reason)
		}
	}
}

// exchange declares an exchange; one that exists is used whatever its flags.
func (d *declarer) exchange(ps *redeliver.Problems, name, kind string) bool {
	refused := d.run(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclarePassive(name, kind, true, false, false, false, nil)
	})
	if refused != nil && isNotFound(refused) {
		refused = d.run(func(ch *amqp091.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
	}
	if refused != nil {
		ps.Add("exchange "+name, kind, "cannot be declared; the broker says: "+refused.Reason)
	}
	return refused == nil && d.err == nil
}
