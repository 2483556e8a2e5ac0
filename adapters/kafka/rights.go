package kafka

// Right is an access right of a principal on Kafka, in the terms of its ACLs.
type Right struct {
	Resource   string // "topic" or "group"
	Name       string
	Operations []string // such as "Read" and "Write", as kafka-acls.sh names them
}

// Read, Write and Delete include Describe.
const (
	opRead            = "Read"
	opWrite           = "Write"
	opDelete          = "Delete" // of records
	opDescribe        = "Describe"
	opDescribeConfigs = "DescribeConfigs"
)

func onTopic(name string, operations ...string) Right {
	return Right{Resource: "topic", Name: name, Operations: operations}
}

// rights returns the rights of the members. A member reads the origin and all topics on which messages wait, compares
// their settings at start, writes messages to their next topic, and deletes settled records. Its idempotent producer
// needs Write on one topic.
func (l *layout) rights() []Right {
	all := []Right{onTopic(l.origin, opRead, opDescribeConfigs)}
	for _, t := range l.topics {
		switch {
		case !t.waits():
			all = append(all, onTopic(t.name, opWrite, opDescribeConfigs))
		case t.old: // only read until it is empty
			all = append(all, onTopic(t.name, opRead, opDelete, opDescribeConfigs))
		default:
			all = append(all, onTopic(t.name, opRead, opWrite, opDelete, opDescribeConfigs))
		}
	}
	return append(all, onTopic(l.control.name, opRead), Right{Resource: "group", Name: l.group, Operations: []string{opRead}})
}

// operatorRights returns the rights for work on the DLQ and for Doctor.
func (l *layout) operatorRights() []Right {
	all := []Right{onTopic(l.origin, opDescribe, opDescribeConfigs)}
	for _, t := range l.topics {
		switch t.kind {
		case dlqTopic: // Write is for an import
			all = append(all, onTopic(t.name, opRead, opWrite, opDelete, opDescribeConfigs))
		case retryTopic: // Write is for a replay
			all = append(all, onTopic(t.name, opRead, opWrite, opDescribeConfigs))
		default:
			all = append(all, onTopic(t.name, opRead, opDescribeConfigs))
		}
	}
	for _, t := range l.companions() {
		all = append(all, onTopic(t.Name, opRead, opWrite, opDescribeConfigs))
	}
	return append(all, Right{Resource: "group", Name: l.group, Operations: []string{opDescribe}})
}
