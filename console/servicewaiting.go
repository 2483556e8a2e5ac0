package console

import (
	"context"
	"errors"

	"github.com/redeliver/redeliver/deadletter"
)

// errNoCommands refuses commands about waiting messages.
var errNoCommands = invalidInput("waiting messages cannot be released or cancelled here: that works only on Kafka, with a queue that is a console.Commander")

// commandAction returns the action for a kind of command.
func commandAction(kind deadletter.CommandKind) (Action, error) {
	switch kind {
	case deadletter.CommandRelease:
		return ActionRelease, nil
	case deadletter.CommandCancel:
		return ActionCancelWaiting, nil
	default:
		return "", invalidInput("waiting messages can be released or cancelled, and not %q", truncate(string(kind), 40))
	}
}

// commander returns the queue as a Commander, or errNoCommands.
func (q *openQueue) commander() (Commander, error) {
	if c, ok := q.q.(Commander); ok {
		return c, nil
	}
	return nil, errNoCommands
}

// listCommands returns the commands that were sent. It is only for users who may send them.
func (svc *service) listCommands(ctx context.Context, who Actor, key string) ([]deadletter.Command, error) {
	if err := svc.requireRight(who, key, ActionRelease); err != nil {
		return nil, err
	}
	q, who, err := svc.findQueue(who, key)
	if err != nil {
		return nil, err
	}
	c, err := q.commander()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	all, err := c.Commands(ctx)
	for i := range all {
		all[i].Filter.Filter = svc.redactFilter(who, q.info, &all[i].Filter.Filter)
	}
	return all, err
}

// sendCommand sends a command about waiting messages to the consumers.
func (svc *service) sendCommand(ctx context.Context, who Actor, key string, c deadletter.Command) error {
	action, err := commandAction(c.Kind)
	if err != nil {
		return err
	}
	rec := Record{Action: action, Filter: &c.Filter.Filter, Levels: c.Filter.Levels, Why: c.Why}
	return svc.sendToConsumers(ctx, &who, key, &rec, func(ctx context.Context, to Commander) error {
		c.Who = historyName(who)
		sent, err := to.SendCommand(ctx, c)
		rec.Task = sent.ID
		return err
	})
}

// sendToConsumers calls do with the Commander of a DLQ, and records the result.
func (svc *service) sendToConsumers(ctx context.Context, who *Actor, key string, rec *Record, do func(context.Context, Commander) error) error {
	q, err := svc.openFor(who, key, *rec)
	if err != nil {
		return err
	}
	to, err := q.commander()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, maxReadTime)
		defer cancel()
		err = do(ctx, to)
	}
	return errors.Join(err, svc.recordResult(*who, q, *rec, nil, err))
}
