package redelivertest

import (
	"context"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Pause implements [mq.Pauser]. It takes effect at once. [Broker.Wait] cannot return while messages wait for the end of a pause.
func (c *memberClient) Pause(ctx context.Context, topic, reason string) error {
	mark := engine.NewPauseMark(ctx, reason, false)
	return c.setPaused(topic, &mark)
}

// PauseNew implements [mq.NewPauser]: retries that fall due continue.
func (c *memberClient) PauseNew(ctx context.Context, topic, reason string) error {
	mark := engine.NewPauseMark(ctx, reason, true)
	return c.setPaused(topic, &mark)
}

// Resume implements [mq.Pauser].
func (c *memberClient) Resume(_ context.Context, topic string) error { return c.setPaused(topic, nil) }

// Paused implements [mq.Pauser].
func (c *memberClient) Paused(_ context.Context, topic string) (*redeliver.PauseMark, error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.b.queueLocked(topic, c.cfg.Group).paused, nil
}

func (c *memberClient) setPaused(topic string, mark *redeliver.PauseMark) error {
	b := c.b
	b.pausing.Lock()
	defer b.pausing.Unlock()
	b.mu.Lock()
	err := c.checkOpenLocked()
	var readers []*reader
	if err == nil {
		q := b.queueLocked(topic, c.cfg.Group)
		q.paused = mark
		b.wakeAllLocked() // a pause may hold back the suspect for which other messages wait
		for _, r := range b.readers {
			if r.q == q {
				readers = append(readers, r)
			}
		}
	}
	b.mu.Unlock()
	for _, r := range readers {
		r.sub.SetPaused(mark)
	}
	return err
}

// holdsBack reports whether a pause keeps an item from beginning. The caller holds the broker's mu.
func (q *queue) holdsBack(it *item) bool {
	return q.paused != nil && !(q.paused.NewOnly && it.waits)
}

// applyPause pauses a reader that starts while its group is paused.
func (r *reader) applyPause() {
	b := r.q.b
	b.pausing.Lock()
	defer b.pausing.Unlock()
	b.mu.Lock()
	mark := r.q.paused
	b.mu.Unlock()
	r.sub.SetPaused(mark)
}
