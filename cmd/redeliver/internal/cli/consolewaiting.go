package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// pausable is a DLQ whose group can be paused. It closes the group's waiting messages with itself.
type pausable struct {
	deadletter.Queue
	console.Pauser
	waits *waiting
}

// levelled also counts the waiting messages of the group.
type levelled struct{ *pausable }

// commanded also sends commands about waiting messages to the group's consumers.
type commanded struct {
	*levelled
	console.Commander
}

// withGroup adds what the broker reports of the DLQ's group, and what can be asked of it. After an error it adds what works.
func (b *broker) withGroup(ctx context.Context, q deadletter.Queue) (deadletter.Queue, error) {
	if b.waiting == nil {
		return q, nil
	}
	w, err := b.waiting(ctx, subject{topic: q.Info().Origin, group: q.Info().Group})
	if err != nil {
		return q, err
	}
	p := &pausable{q, w.pauser, w}
	if b.kind == brokerurl.RabbitMQ && b.queues == nil { // only our default policy's levels would be counted
		return p, errors.New("its delay queues cannot be listed without --management-url")
	}
	if _, err := w.levels(ctx); err != nil { // report a missing right now, and not at each refresh
		return p, err
	}
	l := &levelled{p}
	if w.commands != nil {
		return &commanded{l, w.commands}, nil
	}
	return l, nil
}

// Waiting implements [console.Waiter].
func (l *levelled) Waiting(ctx context.Context) ([]console.Level, error) {
	all, err := l.waits.levels(ctx)
	levels := make([]console.Level, 0, len(all))
	for _, one := range all {
		if one.Depth < 0 {
			continue // unknown
		}
		level := console.Level{Name: delayqueue.LevelName(one.Level), Count: one.Depth, Late: -1}
		if one.Level == 0 {
			level.Name = "on the way back"
		}
		if late := time.Since(one.Due); one.Depth > 0 && !one.Due.IsZero() && late > 0 {
			level.Overdue = late
		}
		if i := slices.IndexFunc(levels, func(l console.Level) bool { return l.Name == level.Name }); i >= 0 { // another shard
			levels[i].Count, levels[i].Overdue = levels[i].Count+level.Count, max(levels[i].Overdue, level.Overdue)
			continue
		}
		levels = append(levels, level)
	}
	return levels, err
}

// Close implements [deadletter.Queue].
func (p *pausable) Close() error { return errors.Join(p.waits.end(), p.Queue.Close()) }

// end closes the connections of w.
func (w *waiting) end() error {
	if w.close == nil {
		return nil
	}
	return w.close()
}
