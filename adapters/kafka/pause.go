package kafka

import (
	"context"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/internal/engine"
)

// pauseKey is the key of the control topic's record that pauses the group. Its value is a redeliver.PauseMark.
const pauseKey = "pause"

// Pause pauses a topic for all members of the client's group, until [Client.Resume]. Nothing new begins, neither first
// attempts nor retries; what runs goes on. The members stay in the group, and know within seconds. Those that start
// later are paused, too. Others see the reason. A second Pause replaces the first. The group must have subscribed to
// the topic before. The first command to a group creates its control topic.
func (c *Client) Pause(ctx context.Context, topic, reason string) error {
	return c.withWaiting(ctx, topic, func(w *Waiting) error { return w.Pause(ctx, reason) })
}

// PauseNew is [Client.Pause], but retries that fall due continue.
func (c *Client) PauseNew(ctx context.Context, topic, reason string) error {
	return c.withWaiting(ctx, topic, func(w *Waiting) error { return w.PauseNew(ctx, reason) })
}

// Resume ends a pause. It does nothing if there is none.
func (c *Client) Resume(ctx context.Context, topic string) error {
	return c.withWaiting(ctx, topic, func(w *Waiting) error { return w.Resume(ctx) })
}

func (c *Client) withWaiting(ctx context.Context, topic string, do func(*Waiting) error) error {
	w, err := c.Waiting(ctx, WaitingConfig{Topic: topic})
	if err != nil {
		return err
	}
	defer w.Close()
	return do(w)
}

// Pause is [Client.Pause] for the group of w.
func (w *Waiting) Pause(ctx context.Context, reason string) error { return w.pause(ctx, reason, false) }

// PauseNew is [Client.PauseNew] for the group of w.
func (w *Waiting) PauseNew(ctx context.Context, reason string) error {
	return w.pause(ctx, reason, true)
}

func (w *Waiting) pause(ctx context.Context, reason string, newOnly bool) error {
	return w.writePause(ctx, produce.Entry{Key: pauseKey, Value: []byte(engine.NewPauseMark(reason, newOnly).String())})
}

// Resume is [Client.Resume] for the group of w.
func (w *Waiting) Resume(ctx context.Context) error {
	return w.writePause(ctx, produce.Tombstone(pauseKey))
}

func (w *Waiting) writePause(ctx context.Context, e produce.Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.createControlLocked(); err != nil {
		return err
	}
	if err := w.checkControl(); err != nil {
		return err
	}
	return w.c.writeEntries(ctx, w.control.Topic, e)
}

// Paused returns by whom, when and why a topic was paused for the client's group, or nil.
func (c *Client) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	return c.paused(ctx, topic, c.cfg.Group)
}

// Paused is [Client.Paused] for the group of w.
func (w *Waiting) Paused(ctx context.Context) (*redeliver.PauseMark, error) {
	return w.c.paused(ctx, w.topic, w.group)
}

func (c *Client) paused(ctx context.Context, topic, group string) (*redeliver.PauseMark, error) {
	control := c.cfg.Names.control(topic, group)
	existing, err := c.admin.Topics(control)
	if err != nil || existing[control] == nil {
		return nil, err
	}
	var log commandLog
	err = log.refresh(ctx, &topiclog.Reader{Client: c.admin.Client, Topic: control})
	return log.paused, err
}
