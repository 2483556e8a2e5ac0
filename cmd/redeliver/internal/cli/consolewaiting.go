package cli

import (
	"context"
	"errors"
	"time"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// attached is a DLQ with its waiting messages. Its Close also closes their connections.
type attached struct {
	deadletter.Queue
	waits *waiting
}

// pausable is a DLQ whose group can be paused.
type pausable struct {
	*attached
	console.Pauser
}

// counted counts waiting messages.
type counted struct{ *attached }

// countedPausable counts waiting messages, and its group can be paused.
type countedPausable struct {
	*counted
	console.Pauser
}

// commanded also sends commands about waiting messages to the group's consumers.
type commanded struct {
	*countedPausable
	console.Commander
}

// withGroup adds the functions for the DLQ's group that the broker supports. After an error it adds those that work.
func (b *broker) withGroup(ctx context.Context, q deadletter.Queue) (deadletter.Queue, error) {
	w, err := b.waiting(ctx, subject{topic: q.Info().Origin, group: q.Info().Group})
	if err != nil {
		return q, err
	}
	if b.kind == brokerurl.RabbitMQ && b.queues == nil { // only our default policy's levels would be counted
		err = errors.New("its delay queues cannot be listed without --management-url")
	} else {
		_, err = w.levels(ctx) // report missing rights now, and not at each refresh
	}
	a := &attached{q, w}
	c := &counted{a}
	switch {
	case err != nil && w.pauser == nil:
		return a, err
	case err != nil:
		return &pausable{a, w.pauser}, err
	case w.pauser == nil:
		return c, nil
	case w.commands == nil:
		return &countedPausable{c, w.pauser}, nil
	default:
		return &commanded{&countedPausable{c, w.pauser}, w.commands}, nil
	}
}

// Waiting implements [console.Waiter].
func (c *counted) Waiting(ctx context.Context) ([]console.Level, error) {
	all, err := c.waits.levels(ctx)
	levels := make([]console.Level, 0, len(all))
	for _, one := range all {
		if one.Depth < 0 {
			continue // unknown
		}
		level := console.Level{Name: delayqueue.LevelName(one.Level), Count: one.Depth, Late: -1}
		if one.Level == 0 {
			level.Name = "retry"
		}
		if late := time.Since(one.Due); one.Depth > 0 && !one.Due.IsZero() && late > 0 {
			level.Overdue = late
		}
		levels = append(levels, level)
	}
	return levels, err
}

// Close implements [deadletter.Queue].
func (a *attached) Close() error { return errors.Join(a.waits.end(), a.Queue.Close()) }
