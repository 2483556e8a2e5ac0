package topology

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/check"
)

// redeliver checks its rights with requests that cannot succeed. RabbitMQ checks the rights first, whether or not the
// queue exists, and then refuses. Nothing is created, read or written. Each request leaves a line in the broker's
// log, so Subscribe checks only what it would not find out anyway.

// missingRights collects the queues with a missing right, and the broker's first answer.
type missingRights struct {
	configure, read, write denial
	exclusive              denial // nothing is missing, but another consumer reads them
}

// addRead adds a refusal to read a queue.
func (r *missingRights) addRead(queue string, refused *amqp091.Error) {
	if link.IsExclusive(refused) {
		r.exclusive.add(queue, refused)
	} else {
		r.read.add(queue, refused)
	}
}

type denial struct {
	targets []string
	reason  string
}

func (n *denial) add(what string, refused *amqp091.Error) {
	if !slices.Contains(n.targets, what) {
		n.targets = append(n.targets, what)
	}
	n.reason = cmp.Or(n.reason, refused.Reason)
}

// addProblems adds one problem for each right, because an administrator changes each pattern in one place.
func (r *missingRights) addProblems(ps *check.Problems) {
	for _, queue := range r.exclusive.targets {
		ps.Add("queue "+queue, "in exclusive use", "must not be read exclusively by another consumer: end that one; the broker says: "+r.exclusive.reason)
	}
	for _, right := range []struct {
		name string
		denial
	}{{"configure", r.configure}, {"read", r.read}, {"write", r.write}} {
		if len(right.targets) > 0 {
			ps.Add(rightField+right.name, "missing", fmt.Sprintf(
				"must be given to the user for %s (rabbitmqctl set_permissions); the broker says: %s", strings.Join(right.targets, ", "), right.reason))
		}
	}
}

// rightField is the beginning of a problem about a missing right.
const rightField = "right to "

// IsDenial reports whether err is about missing rights alone.
func IsDenial(err error) bool {
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	return ok && !slices.ContainsFunc(refused.Problems, func(p redeliver.Problem) bool { return !strings.HasPrefix(p.Field, rightField) })
}

func isNotFound(refused *amqp091.Error) bool { return refused != nil && link.IsNotFound(refused) }

func isAccessRefused(refused *amqp091.Error) bool {
	return refused != nil && refused.Code == amqp091.AccessRefused
}

// impossibleArgs are arguments with which no queue can be declared.
var impossibleArgs = amqp091.Table{"x-expires": "never"}

// checkConfigureExchange checks whether the user may declare an exchange that does not exist.
func (d *Declarer) checkConfigureExchange(name, kind string) {
	refused := d.run(func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(name, kind, true, false, false, false, amqp091.Table{"alternate-exchange": true}) // must be text
	})
	if isAccessRefused(refused) {
		d.rights.configure.add("exchange "+name, refused)
	}
}

// checkBind checks whether the user may bind a queue to an exchange, of which one does not exist.
func (d *Declarer) checkBind(queue, exchange string) {
	refused := d.run(func(ch *amqp091.Channel) error { return ch.QueueBind(queue, "", exchange, false, nil) })
	d.addBindDenial(queue, exchange, refused)
}

// addBindDenial adds a denial to bind a queue to an exchange, and reports whether it is one.
func (d *Declarer) addBindDenial(queue, exchange string, refused *amqp091.Error) bool {
	switch {
	case !isAccessRefused(refused):
		return false
	case strings.Contains(refused.Reason, "to exchange"):
		d.rights.read.add("exchange "+exchange, refused)
	default:
		d.rights.write.add(queue, refused)
	}
	return true
}

// checkConfigure checks and reports whether the user may declare a queue.
func (d *Declarer) checkConfigure(name string) bool {
	refused := d.run(func(ch *amqp091.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, impossibleArgs)
		return err
	})
	if isAccessRefused(refused) {
		d.rights.configure.add(name, refused)
		return false
	}
	return true
}

// CheckRead checks whether the user may read a queue.
func (d *Declarer) CheckRead(name string) {
	if refused := d.probeRead(name); isAccessRefused(refused) {
		d.rights.addRead(name, refused)
	}
}

// AddReadDenial adds a denial to read a queue, if the error of a consumer is one.
func (d *Declarer) AddReadDenial(name string, err error) {
	if refused, ok := errors.AsType[*amqp091.Error](err); ok && isAccessRefused(refused) {
		d.rights.addRead(name, refused)
	}
}

// DeniesRead reports whether a queue may not be read.
func (d *Declarer) DeniesRead() bool {
	return len(d.rights.read.targets)+len(d.rights.exclusive.targets) > 0
}

func (d *Declarer) probeRead(name string) *amqp091.Error {
	return d.run(func(ch *amqp091.Channel) error {
		// Without a prefetch: with one, a stream accepts it and breaks the connection.
		_, err := ch.Consume(name, link.ConsumerTag, false, false, false, false, amqp091.Table{"x-stream-offset": true})
		if err == nil { // no known RabbitMQ does this
			d.Close()
		}
		return err
	})
}

// isStream reports whether a queue is a stream, for a user who may read it but not declare it.
func (d *Declarer) isStream(name string) bool {
	refused := d.probeRead(name)
	return refused != nil && refused.Code == amqp091.PreconditionFailed && strings.Contains(refused.Reason, "prefetch")
}

func isInequivalent(refused *amqp091.Error, flag string) bool {
	return refused != nil && refused.Code == amqp091.PreconditionFailed && strings.Contains(refused.Reason, "inequivalent arg '"+flag+"'")
}

func addType(ps *check.Problems, queue, kind string) {
	ps.Add("queue "+queue, kind, "must be a quorum or a classic queue")
}

var (
	errAlarm      = errors.New("the broker is in alarm")
	errUnanswered = errors.New("no answer")
)

// checkWrite checks whether the user may write to queues by name. It uses the publishing connection, because a broker
// in alarm blocks a connection that has tried to publish, and acks must still get through.
func (b *Broker) checkWrite(ctx context.Context, r *missingRights) error {
	if b.Publishing.Blocked.Closed() {
		return errAlarm
	}
	denied := b.Publishing.Do(ctx, func(l *link.Link) error { return b.tryWrite(ctx, l) })
	if refused, ok := errors.AsType[*amqp091.Error](denied); ok && isAccessRefused(refused) {
		r.write.add("exchange amq.default, which is the default exchange", refused)
		return nil
	}
	return denied
}

// tryWrite asks for a publish that is denied, or refused before it is routed. It returns only a denial, or why the broker
// did not answer.
func (b *Broker) tryWrite(ctx context.Context, l *link.Link) error {
	ch, err := l.Channel(ctx)
	if err != nil {
		return err
	}
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	// An expiration of "never" is refused before the message is routed.
	if err := ch.PublishWithContext(ctx, "", rand.Text(), true, false, amqp091.Publishing{Expiration: "never"}); err != nil {
		return err
	}
	timeout, look := time.After(b.DialTimeout), time.NewTicker(50*time.Millisecond)
	defer look.Stop()
	for err == nil {
		select {
		case refused := <-closed:
			if isAccessRefused(refused) {
				return refused
			}
			return nil
		case <-look.C:
			if b.Publishing.Blocked.Closed() { // the broker notifies connections that try to publish
				err = errAlarm
			}
		case <-timeout:
			err = errUnanswered
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	go func() { _ = ch.Close() }() // it may block as long as the broker does
	return err
}
