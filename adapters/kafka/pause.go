package kafka

import (
	"context"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// pauseKey is the key of the record of the control topic that pauses the group. Its value is a redeliver.PauseMark.
const pauseKey = "pause"

// Pause pauses a topic for all members of the client's group, until [Client.Resume]. Nothing new begins, neither first
// attempts nor retries; what runs goes on. The members stay in the group. They know within some seconds, and a member
// that starts later, too. The reason is shown to others. A second Pause replaces it. The group must have subscribed to
// the topic before. The first command to a group creates its control topic.
func (c *Client) Pause(ctx context.Context, topic, reason string) error {
	mark := engine.NewPauseMark(reason)
	return c.writePause(ctx, topic, stateEntry{pauseKey, []byte(mark.String())})
}

// Resume ends a pause. It does nothing if there is none.
func (c *Client) Resume(ctx context.Context, topic string) error {
	return c.writePause(ctx, topic, tombstoneOf(pauseKey))
}

func (c *Client) writePause(ctx context.Context, topic string, e stateEntry) error {
	w, err := c.Waiting(ctx, WaitingConfig{Topic: topic})
	if err != nil {
		return err
	}
	defer w.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.createControlLocked(); err != nil {
		return err
	}
	if err := w.checkControl(); err != nil {
		return err
	}
	return c.writeEntries(ctx, w.control.topic, e)
}

// Paused returns by whom, when and why a topic was paused for the client's group, or nil.
func (c *Client) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	control := c.cfg.Names.control(topic, c.cfg.Group)
	existing, err := c.admin.topics(control)
	if err != nil || existing[control] == nil {
		return nil, err
	}
	var log commandLog
	err = log.refresh(ctx, &logReader{client: c.admin.client, topic: control})
	return log.paused, err
}
