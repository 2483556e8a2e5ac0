package kafka

// Right is an access right of a principal on Kafka, in the terms of its ACLs.
type Right struct {
	Resource   string // "topic" or "group"
	Name       string
	Operations []string // "Read", "Write", ... as kafka-acls.sh has them
}

// The operations. Read, Write and Delete include Describe.
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

// rights are the members'. A member reads the origin and all on which messages wait,
// compares the settings of all of them at start, writes where a message goes next, and
// gives back what is settled. Its producer is idempotent: Kafka before 2.8 wants
// IdempotentWrite on the cluster for that, a newer one Write on any topic.
func (l *layout) rights() []Right {
	all := []Right{onTopic(l.origin, opRead, opDescribeConfigs)}
	for _, t := range l.topics {
		switch {
		case !t.waits():
			all = append(all, onTopic(t.name, opWrite, opDescribeConfigs))
		case t.old: // is run empty
			all = append(all, onTopic(t.name, opRead, opDelete, opDescribeConfigs))
		default:
			all = append(all, onTopic(t.name, opRead, opWrite, opDelete, opDescribeConfigs))
		}
	}
	return append(all, onTopic(l.control.name, opRead), Right{Resource: "group", Name: l.group, Operations: []string{opRead}})
}

// operatorRights are those of who works on the DLQ, and asks Doctor how the group is.
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
