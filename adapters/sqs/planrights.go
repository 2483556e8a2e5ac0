package sqs

// Right is a set of actions that AWS must allow on a queue.
type Right struct {
	Queue   string
	ARN     string   // empty where that is not known
	Actions []string // "sqs:ReceiveMessage", ...
}

// findActions are what it takes to find a queue and to see what it is like.
func findActions(more ...string) []string {
	return append([]string{"sqs:GetQueueUrl", "sqs:GetQueueAttributes"}, more...)
}

// readActions are what it takes to work on what a queue has.
func readActions(more ...string) []string {
	return append(findActions("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"), more...)
}

const sendAction = "sqs:SendMessage"

// rights are a subscriber's. A message of a FIFO queue waits in hand, of others as a
// copy.
func (l *layout) rights() []Right {
	main := readActions(sendAction)
	if l.main.fifo {
		main = readActions()
	}
	all := []Right{{l.main.name, l.main.arn, main}, {l.suspects.name, l.suspects.arn, readActions(sendAction)}}
	if l.dlq != nil {
		all = append(all, Right{l.dlq.name, l.dlq.arn, findActions(sendAction)})
	}
	return all
}

// operatorRights are those of who works on the DLQ.
func (l *layout) operatorRights() []Right {
	if l.dlq == nil {
		return nil
	}
	return []Right{
		{l.main.name, l.main.arn, findActions(sendAction)}, // a replay
		{l.dlq.name, l.dlq.arn, readActions(sendAction)},   // an import sends
		{stateName(l.dlq.name), "", readActions(sendAction)},
	}
}
