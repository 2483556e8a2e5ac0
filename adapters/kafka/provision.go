package kafka

import (
	"errors"

	"github.com/IBM/sarama"
)

// provision checks the topics that exist and creates the others. Several processes may call it at once.
func (c *Client) provision(l *layout) error {
	if err := c.verifyFresh(l); err != nil {
		return err
	}
	created := false
	for _, t := range l.topics {
		if !t.exists && !t.rung {
			if _, err := c.admin.CreateTopic(t.spec(), l.neededRetention()); err != nil {
				return err
			}
			created = true
		}
	}
	if !created {
		return nil
	}
	all := l.subscribed()
	if !l.discards {
		all = append(all, l.topicOf(dlqTopic, 0).name)
	}
	if err := c.admin.AwaitLeaders(all...); err != nil {
		return err
	}
	// Another process may have created them with other settings, or the broker may have changed ours.
	fresh, err := c.layout(l.origin, l.group)
	if err != nil {
		return err
	}
	if err := c.verify(fresh); err != nil {
		return err
	}
	*l = *fresh
	return nil
}

// verifyFresh is verify, but lists the topics again if one was deleted meanwhile, for example a level of an older
// policy.
func (c *Client) verifyFresh(l *layout) error {
	err := c.verify(l)
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return err
	}
	fresh, err := c.layout(l.origin, l.group)
	if err != nil {
		return err
	}
	*l = *fresh
	return c.verify(l)
}

// verify refuses existing topics that cannot hold the policy.
func (c *Client) verify(l *layout) error {
	var names []string
	for _, t := range l.topics {
		if t.exists {
			names = append(names, t.name)
		}
	}
	settings, err := c.admin.Settings(names...)
	if err != nil {
		return err
	}
	return l.check(c.cfg, settings)
}
