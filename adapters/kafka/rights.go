package kafka

import (
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/mq"
)

// Read, Write and Delete include Describe.
const (
	opRead            = "Read"
	opWrite           = "Write"
	opDelete          = "Delete" // of records
	opDescribe        = "Describe"
	opDescribeConfigs = "DescribeConfigs"
)

func onTopic(name string, operations ...string) mq.Right {
	return mq.Right{Resource: "topic", Name: name, Operations: operations}
}

// rights returns the rights of the members. A member reads the origin and all topics on which messages wait, compares
// their settings at start, writes messages to their next topic, and deletes settled records. Its idempotent producer
// needs Write on one topic.
func rights(l *topology.Layout) []mq.Right {
	all := []mq.Right{onTopic(l.Origin, opRead, opDescribeConfigs)}
	for _, t := range l.Topics {
		switch {
		case !t.Waits():
			all = append(all, onTopic(t.Name, opWrite, opDescribeConfigs))
		case t.Old: // only read until it is empty
			all = append(all, onTopic(t.Name, opRead, opDelete, opDescribeConfigs))
		default:
			all = append(all, onTopic(t.Name, opRead, opWrite, opDelete, opDescribeConfigs))
		}
	}
	return append(all, onTopic(l.Control.Name, opRead), mq.Right{Resource: "group", Name: l.Group, Operations: []string{opRead}})
}

// operatorRights returns the rights for work on the DLQ and for Doctor.
func operatorRights(l *topology.Layout) []mq.Right {
	all := []mq.Right{onTopic(l.Origin, opDescribe, opDescribeConfigs)}
	for _, t := range l.Topics {
		switch t.Kind {
		case topology.DLQ: // Write is for an import
			all = append(all, onTopic(t.Name, opRead, opWrite, opDelete, opDescribeConfigs))
		case topology.Retry: // Write is for a replay
			all = append(all, onTopic(t.Name, opRead, opWrite, opDescribeConfigs))
		default:
			all = append(all, onTopic(t.Name, opRead, opDescribeConfigs))
		}
	}
	for _, t := range companions(l) {
		all = append(all, onTopic(t.Name, opRead, opWrite, opDescribeConfigs))
	}
	return append(all, mq.Right{Resource: "group", Name: l.Group, Operations: []string{opDescribe}})
}
