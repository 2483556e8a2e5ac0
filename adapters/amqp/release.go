package amqp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/scan"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/mq"
)

// releaseWindow is how many messages of a level are written to the retry queue before they are acked. A killed
// process leaves at most two windows of duplicates: its last copies, and the previous ones, whose acks a quorum queue
// may not have applied.
const releaseWindow = 500

// Release moves the waiting messages of a topic's levels to the retry queue, due now, and returns
// their number. It moves the messages that are ready on a level when it reaches that level.
// Subscribers read levels of up to a minute themselves; Release does not move the messages that
// they hold.
//
// A message is acked on its level when the broker has confirmed the copy. If the process is killed,
// no message is lost, and at most 1,000 duplicates with the same id remain; call Release again for
// the rest.
func (c *client) Release(ctx context.Context, cfg mq.ReleaseConfig) (moved int64, err error) {
	levels, err := c.WaitingLevels(ctx, cfg.Topic)
	if err != nil {
		return 0, err
	}
	queue := c.cfg.Topology.queue(cfg.Topic)
	for _, level := range cfg.Levels {
		if !slices.ContainsFunc(levels, func(l deadletter.WaitingLevel) bool { return l.Level == level }) {
			return 0, fmt.Errorf("amqp: queue %s does not exist, or is of another policy, for which ManagementURL must be set", c.cfg.names().DelayOf(queue, level))
		}
	}
	r := &release{client: c, to: c.cfg.names().RetryOf(queue), link: link.New(c.cfg.link("redeliver, releasing waiting messages", true))}
	defer r.link.Close()
	for _, l := range levels {
		if l.Level == 0 || len(cfg.Levels) > 0 && !slices.Contains(cfg.Levels, l.Level) {
			continue
		}
		n, err := r.moveLevel(ctx, l.Place, cfg.Moved)
		if moved += n; err != nil {
			return moved, fmt.Errorf("amqp: releasing %s: %w", l.Place, err)
		}
	}
	if r.refused > 0 {
		err = fmt.Errorf("amqp: %d messages stay on their level, because the broker refused their copies: %w", r.refused, r.refusal)
	}
	return moved, err
}

// release moves messages of levels to the retry queue.
type release struct {
	client  *client
	to      string
	link    *link.Link
	refused int   // refused copies; their messages stay on the level
	refusal error // of the first
}

// moveLevel moves the ready messages of one level.
func (r *release) moveLevel(ctx context.Context, queue string, report func(string, int)) (moved int64, err error) {
	conn, err := r.link.Get(ctx)
	if err != nil {
		return 0, err
	}
	h, err := scan.New(conn, queue, r.client.cfg.RetryBytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, h.ReturnAll(context.WithoutCancel(ctx))) }()
	for !h.AtEnd() {
		window, err := r.read(ctx, h)
		if err != nil {
			return moved, err
		}
		n, err := r.move(ctx, h, window)
		if moved += int64(n); report != nil && n > 0 {
			report(queue, n)
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// read reads the next window of messages.
func (r *release) read(ctx context.Context, h *scan.Scanner) (window []scan.Message, err error) {
	for bytes := 0; len(window) < releaseWindow && bytes < r.client.cfg.RetryBytes; {
		d, err := h.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		window, bytes = append(window, d), bytes+wire.MemoryOf(&d.Delivery)
	}
	return window, nil
}

// move writes messages to the retry queue, and acks those that the broker has confirmed. Refused messages stay on the
// level.
func (r *release) move(ctx context.Context, h *scan.Scanner, window []scan.Message) (moved int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.client.cfg.SendTimeout, fmt.Errorf("no answer within %s", r.client.cfg.SendTimeout))
	defer cancel()
	window = slices.DeleteFunc(window, func(m scan.Message) bool {
		_, unreadable := m.Headers[wire.UnreadableReason] // a copy would have other headers
		return unreadable
	})
	now, keys := time.Now(), r.client.cfg.StateKeys
	errs := r.client.forwarded.SendAll(ctx, len(window), func(i int) (link.Outgoing, error) {
		return link.Outgoing{Publishing: wire.Released(&window[i].Delivery, now, keys), Key: r.to}, nil
	})
	var acks []scan.Mark
	var failed error // the first error
	for i, err := range errs {
		switch {
		case err == nil:
			acks = append(acks, window[i].Mark)
		case errors.Is(err, driver.ErrRefused):
			r.refused++
			r.refusal = cmp.Or(r.refusal, err)
		default:
			failed = cmp.Or(failed, err)
		}
	}
	moved, err = h.Ack(acks)
	return moved, errors.Join(failed, err)
}

// WaitingLevels implements [mq.LevelCounter]. It returns how many messages wait on each level of a topic, and in its retry queue.
// Without Config.ManagementURL it knows only the levels of Config.Policy, because AMQP cannot
// list queues. The broker does not report when the first message is due. Waiting does not check
// whether a subscription with that policy would be refused.
func (c *client) WaitingLevels(ctx context.Context, topic string) ([]deadletter.WaitingLevel, error) {
	l, s, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	asking := link.New(c.cfg.link("redeliver, counting waiting messages", true))
	defer asking.Close()
	count := func(queue string) (n int, there bool, err error) {
		c, err := asking.Stat(ctx, queue)
		if link.IsNotFound(err) {
			return 0, false, nil
		}
		return c.Ready, true, err
	}
	switch _, there, err := count(l.Queue); {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("amqp: queue %s does not exist", l.Queue)
	}
	var all []deadletter.WaitingLevel
	for _, q := range slices.Concat(l.Queues, s.OldLevels()) {
		if q.Kind != layout.DelayQueue && q.Kind != layout.RetryQueue {
			continue
		}
		n, there, err := count(q.Name)
		if err != nil {
			return nil, err
		}
		if there {
			all = append(all, deadletter.WaitingLevel{Level: q.Level, Place: q.Name, Depth: int64(n), Exact: true})
		}
	}
	slices.SortStableFunc(all, func(x, y deadletter.WaitingLevel) int {
		return cmp.Compare(cmp.Or(x.Level, math.MaxInt64), cmp.Or(y.Level, math.MaxInt64))
	})
	return all, nil
}
