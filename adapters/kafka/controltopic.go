package kafka

// controlKind is the topic from which the consumers of a group read commands.
const controlKind kind = "control"

// appendTime is the setting by which the broker's clock times commands.
const appendTime = "message.timestamp.type=LogAppendTime"

// createControl creates the control topic of a subscription where there is none and the
// configuration allows it. Nothing that waits depends on the topic.
func (c *Client) createControl(t ownTopic) (exists bool, err error) {
	there, err := c.admin.topics(t.name)
	if err != nil || there[t.name] != nil || c.cfg.NoProvisioning {
		return there[t.name] != nil, err
	}
	if _, err := c.admin.create(t, 0); err != nil {
		return false, err
	}
	return true, c.admin.awaitLeaders(t.name)
}
