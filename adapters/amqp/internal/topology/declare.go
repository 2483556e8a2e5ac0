package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
)

// Declare makes sure that every queue, exchange and binding exists. It returns all problems in one error.
func (d *Declarer) Declare(l *layout.Layout) error {
	var ps check.Problems
	for _, q := range l.Queues {
		if create := !d.noProvisioning; create || q.Kind != layout.PauseQueue { // it may be missing: nothing is paused then
			d.DeclareQueue(&ps, q, create)
		}
	}
	// An existing queue belongs to the user, whatever its arguments.
	if exists := d.Exists(&ps, l.Queue); !exists && l.Existing {
		addMissingOrigin(&ps, d, l)
	} else if !exists {
		d.DeclareQueue(&ps, l.OriginQueue(), true)
	}
	if l.Binding.Exchange != "" && !l.Existing {
		d.bind(&ps, l)
	}
	return d.Result(ps)
}

// Result returns the error of the connection, or the problems in one error.
func (d *Declarer) Result(ps check.Problems) error {
	if d.err != nil {
		return d.err
	}
	return d.Refusal(ps)
}

// Refusal returns the problems and the missing rights in one error.
func (d *Declarer) Refusal(ps check.Problems) error {
	d.rights.addProblems(&ps)
	if err := ps.Err(); err != nil {
		return fmt.Errorf("amqp: %w", err)
	}
	return nil
}

// Declarer declares queues. It opens a new channel after an error has closed one.
type Declarer struct {
	ctx            context.Context
	link           *link.Link
	open           func() (*amqp091.Channel, error) // on the link
	noProvisioning bool
	ch             *amqp091.Channel
	err            error // of the connection; ends all further work
	rights         missingRights

	// LeftOut are the arguments that redeliver can do without, and that the broker does not know.
	LeftOut []LeftOut
}

// LeftOut is the refusal of an argument without which a queue was declared.
type LeftOut struct {
	Queue string
	Err   error
}

func (d *Declarer) channel() (ch *amqp091.Channel, ok bool) {
	if d.err == nil && (d.ch == nil || d.ch.IsClosed()) {
		d.ch, d.err = d.open()
	}
	return d.ch, d.err == nil
}

func (d *Declarer) Close() {
	if d.ch != nil {
		_ = d.ch.Close() // it may be closed already
	}
}

// run calls what and returns the broker's refusal. It retries in two cases: under load the members of a new quorum
// queue may not find each other in time, and a queue that two clients declare at once is briefly unreachable. It
// retries only a few times, because in the first case the broker closes the connection with its consumers.
func (d *Declarer) run(what func(*amqp091.Channel) error) (refused *amqp091.Error) {
	return d.runRetrying(what, backoff.WithMaxRetries(backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second)), 3))
}

// runOnce is run without retries, for calls that may have succeeded.
func (d *Declarer) runOnce(what func(*amqp091.Channel) error) (refused *amqp091.Error) {
	return d.runRetrying(what, &backoff.StopBackOff{})
}

func (d *Declarer) runRetrying(what func(*amqp091.Channel) error, again backoff.BackOff) (refused *amqp091.Error) {
	failed := backoff.Retry(func() error {
		refused = nil
		err := d.link.Do(d.ctx, func(l *link.Link) error {
			if l != d.link { // another login
				d.Close()
				d.ch, d.err = l.Channel(d.ctx)
			}
			ch, ok := d.channel()
			if !ok {
				return d.err
			}
			return what(ch)
		})
		if d.err != nil {
			return backoff.Permanent(d.err)
		}
		answer, ok := errors.AsType[*amqp091.Error](err)
		switch {
		case err == nil:
		case ok && link.IsUnreachable(answer):
			refused = answer
			return err
		case ok && answer.Code == amqp091.InternalError:
			return err
		// A connection that an administrator or a stopping broker closes does not mean that the queue was refused.
		case ok && answer.Server && answer.Code != amqp091.ConnectionForced:
			refused = answer
		default:
			d.err = fmt.Errorf("amqp: declaring queues: %w", err)
		}
		return nil
	}, again)
	if failed != nil && refused == nil && d.err == nil {
		d.err = fmt.Errorf("amqp: declaring queues: %w", failed)
	}
	return refused
}

// Err returns the error of the connection, if there was one.
func (d *Declarer) Err() error { return d.err }

// Exists reports whether a queue exists.
func (d *Declarer) Exists(ps *check.Problems, name string) bool {
	refused := d.run(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	switch {
	case refused == nil:
		return d.err == nil
	case link.IsNotFound(refused):
		return false
	case isAccessRefused(refused): // RabbitMQ 4.3 and later, see PassiveNeedsConfigure
		d.rights.configure.add(name, refused)
		return true
	case refused.Code == amqp091.ResourceLocked:
		ps.Add("queue "+name, "exclusive", "must not be exclusive to another connection: its retries would outlive it")
		return true
	default:
		ps.Add("queue "+name, refused.Code, "the broker says: "+refused.Reason)
		return true
	}
}

// DeclareQueue declares a queue, or only checks that it exists if create is false.
func (d *Declarer) DeclareQueue(ps *check.Problems, q layout.Queue, create bool) {
	if !create {
		if !d.Exists(ps, q.Name) {
			addMissing(ps, d, q)
		}
		return
	}
	refused := d.run(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(q.Name, true, false, false, false, q.Args)
		return err
	})
	if other, ok := withOtherArguments(q, refused); ok {
		if invalidName.MatchString(refused.Reason) {
			d.LeftOut = append(d.LeftOut, LeftOut{q.Name, refused})
		}
		d.DeclareQueue(ps, other, true)
		return
	}
	switch {
	case refused == nil:
	case isAccessRefused(refused) && strings.Contains(refused.Reason, "exchange"): // the target of its dead letters
		d.rights.write.add("queue "+q.Name+"'s dead-letter exchange", refused)
	case isAccessRefused(refused): // to declare it, or to read it because it dead-letters
		if d.checkConfigure(q.Name) {
			d.rights.read.add(q.Name, refused)
		}
	case refused.Code == amqp091.PreconditionFailed:
		ps.Add("queue "+q.Name, refusedAs(refused), fmt.Sprintf("must have the arguments %s; the broker says: %s. %s", wire.ArgsText(q.Args), refused.Reason, remedyOf(q, refused)))
	default:
		ps.Add("queue "+q.Name, refused.Code, "cannot be declared; the broker says: "+refused.Reason)
	}
}

// isLimit reports whether a queue was refused because of the virtual host's limit, or the cluster's.
func isLimit(refused *amqp091.Error) bool { return strings.Contains(refused.Reason, "queue limit in ") }

// refusedAs returns what a queue is whose declaration was refused.
func refusedAs(refused *amqp091.Error) string {
	if isLimit(refused) || invalidName.MatchString(refused.Reason) {
		return "not declared"
	}
	return "declared otherwise"
}

// remedyOf returns what to do about a declaration that was refused.
func remedyOf(q layout.Queue, refused *amqp091.Error) string {
	switch {
	case isLimit(refused):
		return "Raise the limit (rabbitmqctl set_vhost_limits), or delete queues that nothing uses"
	case invalidName.MatchString(refused.Reason) && q.Kind == layout.MainQueue:
		return "Use a broker that knows this argument, or set Topology.QueueArgs"
	case invalidName.MatchString(refused.Reason):
		return "Use a broker that knows this argument: without it messages could be lost, or come too early"
	default:
		return "Delete it when it is empty, or set other Names"
	}
}

func addMissing(ps *check.Problems, d *Declarer, q layout.Queue) {
	if d.err == nil {
		rules.AddMissing(ps, "queue", q.Name, "Declare it durable with the arguments "+wire.ArgsText(q.Args))
	}
}

func addMissingOrigin(ps *check.Problems, d *Declarer, l *layout.Layout) {
	if d.err == nil {
		ps.Add("queue "+l.Queue, "missing", "must exist: Topology.Existing is set. Declare it, or use another Topology")
	}
}

// inspectQueues adds the problems that Declare would find, and returns which queues exist, without creating anything. It
// skips refused queues. With rights, or if something is missing, it also checks the rights to declare and to read, which a
// subscriber needs: a start that is refused must leave nothing half made.
func (d *Declarer) inspectQueues(s *Survey, rights bool) (there map[string]bool) {
	l, ps := s.layout, &s.Problems
	there = make(map[string]bool)
	unsure := make(map[string]bool) // it may not be there, or not be ours
	for _, q := range append(slices.Clone(l.Queues), l.OriginQueue()) {
		before := len(*ps) + len(d.rights.configure.targets)
		there[q.Name] = d.Exists(ps, q.Name)
		unsure[q.Name] = len(*ps)+len(d.rights.configure.targets) > before
		rights = rights || !there[q.Name] && (!d.noProvisioning || q.Kind == layout.MainQueue && !l.Existing)
	}
	for _, q := range l.Queues {
		creates := !there[q.Name] && !d.noProvisioning
		switch {
		case !there[q.Name] && q.Kind == layout.PauseQueue && d.noProvisioning:
			continue
		case !there[q.Name] && d.noProvisioning:
			addMissing(ps, d, q)
		case there[q.Name] && !unsure[q.Name] && !d.noProvisioning && !s.refused[q.Name]:
			d.DeclareQueue(ps, q, true) // the queue exists: this compares its arguments
		case creates:
			d.checkConfigure(q.Name)
		}
		// Declaring a queue that dead-letters needs the right to read it.
		if rights && (q.IsRead() || creates && q.Kind != layout.DeadQueue) {
			d.CheckRead(q.Name)
		}
	}
	switch {
	case there[l.Queue]:
	case l.Existing:
		addMissingOrigin(ps, d, l)
	default:
		d.checkConfigure(l.Queue)
	}
	if rights {
		d.CheckRead(l.Queue)
		d.checkBinding(l, there[l.Queue])
	}
	return there
}

// checkBinding checks the rights to declare the exchange of a subscription and to bind its queue, as far as something is
// missing.
func (d *Declarer) checkBinding(l *layout.Layout, queueThere bool) {
	b := &l.Binding
	if b.Exchange == "" || l.Existing {
		return
	}
	missing := isNotFound(d.findExchange(b.Exchange, b.Kind))
	if missing {
		d.checkConfigureExchange(b.Exchange, b.Kind)
	}
	if missing || !queueThere {
		d.checkBind(l.Queue, b.Exchange)
	}
}

// bind declares the exchange of a subscription and binds its queue to it.
func (d *Declarer) bind(ps *check.Problems, l *layout.Layout) {
	b := &l.Binding
	if !d.DeclareExchange(ps, b.Exchange, b.Kind) {
		return
	}
	for _, key := range b.Keys {
		refused := d.run(func(ch *amqp091.Channel) error {
			return ch.QueueBind(l.Queue, key, b.Exchange, false, b.Args)
		})
		if refused != nil && !d.addBindDenial(l.Queue, b.Exchange, refused) {
			ps.Add("binding of queue "+l.Queue, key, "the broker says: "+refused.Reason)
		}
	}
}

// DeclareExchange declares an exchange. An existing one is used whatever its flags.
func (d *Declarer) DeclareExchange(ps *check.Problems, name, kind string) bool {
	refused := d.findExchange(name, kind)
	if isNotFound(refused) {
		refused = d.run(func(ch *amqp091.Channel) error { return ch.ExchangeDeclare(name, kind, true, false, false, false, nil) })
	}
	switch {
	case isAccessRefused(refused):
		d.rights.configure.add("exchange "+name, refused)
	case refused != nil:
		ps.Add("exchange "+name, kind, "cannot be declared; the broker says: "+refused.Reason)
	}
	return refused == nil && d.err == nil
}

// findExchange returns the broker's refusal if an exchange does not exist.
func (d *Declarer) findExchange(name, kind string) *amqp091.Error {
	return d.run(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclarePassive(name, kind, true, false, false, false, nil)
	})
}
