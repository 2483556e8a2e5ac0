package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// ErrUnseenMembers means that a group exists, but that its members cannot be described: they use the protocol of KIP-848
// (group.protocol=consumer), or it is a share group. Its consumers may run all the same.
var ErrUnseenMembers = errors.New("the group is of another type (group.protocol=consumer, or a share group), and the broker does not describe its members to this client")

// DescribeGroup returns the coordinator's description of a group. The state of a group that does not exist is Dead. The
// coordinator answers the same about a group of another type; then the error is ErrUnseenMembers.
func (a Admin) DescribeGroup(group string) (*sarama.GroupDescription, error) {
	found, err := a.Sarama.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, fmt.Errorf("kafka: asking for the members of group %s: %w", group, err)
	}
	i := slices.IndexFunc(found, func(d *sarama.GroupDescription) bool { return d.GroupId == group })
	switch {
	case i < 0:
		return nil, fmt.Errorf("kafka: asking for the members of group %s: the coordinator does not answer", group)
	case errors.Is(found[i].Err, sarama.ErrGroupIDNotFound):
		found[i].State = "Dead"
	case !errors.Is(found[i].Err, sarama.ErrNoError):
		return nil, fmt.Errorf("kafka: asking for the members of group %s: %w", group, found[i].Err)
	}
	if found[i].State != "Dead" {
		return found[i], nil
	}
	groups, err := a.Sarama.ListConsumerGroups()
	if _, listed := groups[group]; listed { // also if one broker of several has not answered
		return nil, fmt.Errorf("kafka: asking for the members of group %s: %w", group, ErrUnseenMembers)
	}
	if err != nil {
		return nil, fmt.Errorf("kafka: asking whether group %s exists: %w", group, err)
	}
	return found[i], nil
}
