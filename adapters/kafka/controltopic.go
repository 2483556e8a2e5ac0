package kafka

// controlKind is the topic from which the consumers of a group read commands.
const controlKind kind = "control"

// appendTime is the setting by which the broker's clock times commands.
const appendTime = "message.timestamp.type=LogAppendTime"

// controlTopic is the control topic of a subscription, as it is created with the first command.
func controlTopic(name string, replicas int16, minInSync string) ownTopic {
	t := companion(name, controlKind, replicas, minInSync)
	t.settings["message.timestamp.type"] = "LogAppendTime"
	return t
}
