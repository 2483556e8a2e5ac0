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

// levelled is a DLQ that also counts the waiting messages of its group.
type levelled struct {
	deadletter.Queue
	waits *waiting
}

// withLevels adds the waiting messages, if the broker reports them.
func (b *broker) withLevels(ctx context.Context, q deadletter.Queue) (deadletter.Queue, error) {
	if b.waiting == nil {
		return q, nil
	}
	if b.kind == brokerurl.RabbitMQ && b.queues == nil { // only our default policy's levels would be counted
		return q, errors.New("its delay queues cannot be listed without --management-url")
	}
	w, err := b.waiting(ctx, subject{topic: q.Info().Origin, group: q.Info().Group})
	if err != nil {
		return q, err
	}
	if _, err := w.levels(ctx); err != nil { // report a missing right now, and not at each refresh
		return q, errors.Join(err, w.end())
	}
	l := &levelled{q, w}
	if w.commands != nil {
		return &commanded{l, w.commands}, nil
	}
	return l, nil
}

// commanded is a DLQ whose group's consumers accept commands about waiting messages.
type commanded struct {
	*levelled
	console.Commander
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
func (l *levelled) Close() error { return errors.Join(l.waits.end(), l.Queue.Close()) }

// end closes the connections of w.
func (w *waiting) end() error {
	if w.close == nil {
		return nil
	}
	return w.close()
}
