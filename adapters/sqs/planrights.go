package sqs

// Right is a set of actions that AWS must allow on a queue.
type Right struct {
	Queue   string
	ARN     string   // empty if unknown
	Actions []string // "sqs:ReceiveMessage", ...
}

// findActions returns the actions needed to find a queue and read its attributes.
func findActions(more ...string) []string {
	return append([]string{"sqs:GetQueueUrl", "sqs:GetQueueAttributes"}, more...)
}

// readActions returns the actions needed to process a queue's messages.
func readActions(more ...string) []string {
	return append(findActions("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"), more...)
}

const sendAction = "sqs:SendMessage"

// rights returns the rights of a subscriber. A FIFO message waits hidden; any other waits as a copy.
func (l *layout) rights() []Right {
	main := readActions(sendAction, "sqs:ListQueueTags")
	if l.main.fifo {
		main = readActions("sqs:ListQueueTags")
	}
	all := []Right{{l.main.name, l.main.arn, main}, {l.suspects.name, l.suspects.arn, readActions(sendAction)}}
	if l.dlq != nil {
		all = append(all, Right{l.dlq.name, l.dlq.arn, findActions(sendAction)})
	}
	return all
}

// operatorRights returns the rights of a person who works on the DLQ.
func (l *layout) operatorRights() []Right {
	if l.dlq == nil {
		return nil
	}
	return []Right{
		{l.main.name, l.main.arn, findActions(sendAction, "sqs:ListQueueTags", "sqs:TagQueue", "sqs:UntagQueue")}, // for a replay, and for a pause
		{l.dlq.name, l.dlq.arn, readActions(sendAction)},                                                          // an import sends
		{stateName(l.dlq.name), "", readActions(sendAction)},
	}
}
