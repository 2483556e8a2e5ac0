package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// controlKind is the topic from which the consumers of a group read commands.
const controlKind kind = "control"

// provisionControl makes the control topic of a subscription, or looks whether the one
// there is will do. Nothing that waits depends on it, so what is wrong is told, and
// the consumers read no commands; where it may pass they try again.
func (c *Client) provisionControl(l *layout) {
	exists, err := c.tryControl(l.control)
	l.control.exists, l.controlUnsure = exists && err == nil, err != nil && !forGood(err)
	if err != nil {
		c.cfg.Sink.Event(redeliver.SubscriptionChanged{
			Origin: l.origin, Group: l.group, Change: controlUnread, Detail: controlDetail(err), Err: err,
		})
	}
}

const controlUnread = "commands are not read"

func controlDetail(err error) string {
	if forGood(err) {
		return "what waits can be neither released nor cancelled; all else goes on"
	}
	return "trying again; until then what waits can be neither released nor cancelled; all else goes on"
}

// forGood tells whether an error says that a control topic will not do, or may not be
// had. Any other may be gone a moment later.
func forGood(err error) bool {
	var wrong *redeliver.ConfigError
	return errors.As(err, &wrong) || errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed)
}

// opened returns when it is known whether there is a control topic that will do, trying
// again for as long as nobody says; it is false where there is none, or ctx has ended.
func (c *control) opened(ctx context.Context) bool {
	for wait := c.every; c.state.Load() == controlUnsure; wait = min(2*wait, tidyEvery) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
		exists, err := until(ctx, aside, func() (bool, error) { return c.r.client.retryControl(c.r.layout.control) }, nil)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil && exists:
			c.state.Store(controlReads)
		case err == nil:
			c.state.Store(controlOff)
		case forGood(err):
			c.state.Store(controlOff)
			c.r.tell(controlUnread, controlDetail(err), err)
		}
	}
	return c.state.Load() == controlReads
}

// retryControl is tryControl some time later.
func (c *Client) retryControl(t ownTopic) (exists bool, err error) {
	there, err := c.admin.topics(t.name)
	if err != nil {
		return false, err
	}
	if m := there[t.name]; m != nil {
		t.exists, t.partitions = true, int32(len(m.Partitions))
	}
	return c.tryControl(t)
}

func (c *Client) tryControl(t ownTopic) (exists bool, err error) {
	if !t.exists {
		if c.cfg.NoProvisioning {
			return false, nil // whoever wants it creates it
		}
		if err := c.admin.create(t, 0); err != nil {
			return false, err
		}
		return true, c.admin.awaitLeaders(t.name)
	}
	settings, err := c.admin.settings(t.name)
	if err != nil {
		return true, err
	}
	var ps redeliver.Problems
	if t.partitions != 1 {
		ps.Add("topic "+t.name+" partitions", t.partitions, "must be 1: everybody must read it in the same order")
	}
	if policy := settings[t.name]["cleanup.policy"]; policy != "compact" {
		ps.Add("topic "+t.name+" cleanup.policy", policy, "must be compact: what it forgets would be released and cancelled again")
	}
	if err := ps.Err(); err != nil {
		return true, fmt.Errorf("kafka: %w", err)
	}
	return true, nil
}
