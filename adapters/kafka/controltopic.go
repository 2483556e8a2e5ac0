package kafka

import (
	"fmt"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
)

// controlKind is the topic from which the consumers of a group read commands.
const controlKind kind = "control"

// controlTopic is a control topic as it is made.
func controlTopic(name string, replicas int16, minInSync string) ownTopic {
	t := ownTopic{name: name, kind: controlKind, partitions: 1, replicas: replicas, settings: map[string]string{
		"cleanup.policy":                 "compact",
		"min.compaction.lag.ms":          strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"segment.bytes":                  strconv.Itoa(16 << 20),
		"unclean.leader.election.enable": "false",
	}}
	if minInSync != "" {
		t.settings["min.insync.replicas"] = minInSync
	}
	return t
}

// provisionControl makes the control topic of a subscription, or looks whether the one
// there is will do. Nothing that waits depends on it, so what is wrong is told, and
// the consumers read no commands.
func (c *Client) provisionControl(l *layout) {
	err := c.tryControl(l)
	if err != nil {
		l.control.exists = false
		c.cfg.Sink.Event(redeliver.SubscriptionChanged{
			Origin: l.origin, Group: l.group, Change: "commands are not read",
			Detail: "what waits can be neither released nor cancelled; all else goes on", Err: err,
		})
	}
}

func (c *Client) tryControl(l *layout) error {
	t := l.control
	if !t.exists {
		if c.cfg.NoProvisioning {
			return nil // whoever wants it creates it
		}
		if err := c.admin.create(t, 0); err != nil {
			return err
		}
		if err := c.admin.awaitLeaders([]string{t.name}, c.cfg.SendTimeout); err != nil {
			return err
		}
		l.control.exists = true
		return nil
	}
	settings, err := c.admin.settings(t.name)
	if err != nil {
		return err
	}
	var ps redeliver.Problems
	if t.partitions != 1 {
		ps.Add("topic "+t.name+" partitions", t.partitions, "must be 1: everybody must read it in the same order")
	}
	if policy := settings[t.name]["cleanup.policy"]; policy != "compact" {
		ps.Add("topic "+t.name+" cleanup.policy", policy, "must be compact: what it forgets would be released and cancelled again")
	}
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}
