package sqs

// Right is a set of actions that AWS must allow on a queue.
type Right struct {
	Queue   string
	ARN     string   // empty where that is not known
	Actions []string // "sqs:ReceiveMessage", ...
}

// finds are what it takes to find a queue and to see what it is like.
func finds(more ...string) []string {
	return append([]string{"sqs:GetQueueUrl", "sqs:GetQueueAttributes"}, more...)
}

// reads are what it takes to work on what a queue has.
func reads(more ...string) []string {
	return append(finds("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:DeleteMessage"), more...)
}

const sends = "sqs:SendMessage"

// rights are a subscriber's. A message of a FIFO queue waits in hand, of others as a
// copy.
func (l *layout) rights() []Right {
	main := reads(sends)
	if l.main.fifo {
		main = reads()
	}
	all := []Right{{l.main.name, l.main.arn, main}, {l.suspects.name, l.suspects.arn, reads(sends)}}
	if l.dlq != nil {
		all = append(all, Right{l.dlq.name, l.dlq.arn, finds(sends)})
	}
	return all
}

// operatorRights are those of who works on the DLQ.
func (l *layout) operatorRights() []Right {
	if l.dlq == nil {
		return nil
	}
	return []Right{
		{l.main.name, l.main.arn, finds(sends)}, // a replay
		{l.dlq.name, l.dlq.arn, reads(sends)},   // an import sends
		{stateName(l.dlq.name), "", reads(sends)},
	}
}
