package console

import (
	"context"
	"errors"
	"fmt"

	"github.com/redeliver/redeliver/deadletter"
)

// errNoCommands refuses commands about waiting messages.
var errNoCommands = wrong("waiting messages cannot be released or cancelled here: that works only on Kafka, with a queue that is a console.Commander")

// actionOf returns the action for a kind of command.
func actionOf(kind deadletter.CommandKind) (Action, error) {
	switch kind {
	case deadletter.ReleaseWaiting:
		return Release, nil
	case deadletter.CancelWaiting:
		return CancelWaiting, nil
	default:
		return "", wrong("what waits can be released or cancelled, and not %q", cut(string(kind), 40))
	}
}

// commander returns the queue as a Commander, or errNoCommands.
func (q *openQueue) commander() (Commander, error) {
	if c, ok := q.q.(Commander); ok {
		return c, nil
	}
	return nil, errNoCommands
}

// commands returns the commands that were sent. It is only for users who may send them.
func (d *desk) commands(ctx context.Context, who Actor, key string) ([]deadletter.Command, error) {
	if err := d.permit(who, key, Release); err != nil {
		return nil, err
	}
	q, who, err := d.queue(who, key)
	if err != nil {
		return nil, err
	}
	c, err := q.commander()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	all, err := c.Commands(ctx)
	for i := range all {
		all[i].Filter.Filter = d.filter(who, q.info, &all[i].Filter.Filter)
	}
	return all, err
}

// command sends a command about waiting messages to the consumers.
func (d *desk) command(ctx context.Context, who Actor, key string, c deadletter.Command) error {
	action, err := actionOf(c.Kind)
	if err != nil {
		return err
	}
	rec := Record{Action: action, Filter: &c.Filter.Filter, Levels: c.Filter.Levels, Why: c.Why}
	return d.direct(ctx, &who, key, &rec, func(ctx context.Context, to Commander) error {
		c.Who = signature(who)
		given, err := to.SendCommand(ctx, c)
		rec.Task = given.ID
		return err
	})
}

// withdraw withdraws a command.
func (d *desk) withdraw(ctx context.Context, who Actor, key, id string) error {
	rec := Record{Action: Withdraw, Task: cut(id, maxActor)}
	return d.direct(ctx, &who, key, &rec, func(ctx context.Context, to Commander) error {
		if err := to.Withdraw(ctx, id); err != nil {
			return fmt.Errorf("taking the command %s back: %w", id, err)
		}
		return nil
	})
}

// direct does something with the consumers of a DLQ's group and records it.
func (d *desk) direct(ctx context.Context, who *Actor, key string, rec *Record, do func(context.Context, Commander) error) error {
	q, err := d.enter(who, key, *rec)
	if err != nil {
		return err
	}
	to, err := q.commander()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		err = do(ctx, to)
	}
	return errors.Join(err, d.left(*who, q, *rec, nil, err))
}
