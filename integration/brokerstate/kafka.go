// Package brokerstate asks brokers how much a group has not settled and what is in a DLQ. It does not use redeliver's own
// clients.
package brokerstate

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Kafka returns how many records a group has not committed: of a topic, and of the topics on which its messages wait,
// whose names begin with prefix and ".retry".
func Kafka(ctx context.Context, admin *kadm.Client, group, topic, prefix string) (unsettled int64, detail string, err error) {
	all, err := admin.ListTopics(ctx)
	if err != nil {
		return 0, "", err
	}
	var topics []string
	for _, name := range all.Names() {
		if name == topic || strings.HasPrefix(name, prefix+".retry") {
			topics = append(topics, name)
		}
	}
	ends, err := checked(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return 0, "", err
	}
	starts, err := checked(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return 0, "", err
	}
	committed, err := checked(admin.FetchOffsets(ctx, group))
	if err != nil {
		return 0, "", err
	}
	var behind strings.Builder
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(-1)
		if c, ok := committed.Lookup(end.Topic, end.Partition); ok {
			at = c.At
		}
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			at = max(at, start.Offset)
		}
		if at != end.Offset {
			unsettled += max(1, end.Offset-at) // a commit beyond the end is wrong, too
			fmt.Fprintf(&behind, " %s[%d] %d of %d", strings.TrimPrefix(end.Topic, topic), end.Partition, at, end.Offset)
		}
	})
	return unsettled, behind.String(), nil
}

// checked returns an answer, and the error of the request or else that of a partition.
func checked[Answer interface{ Error() error }](a Answer, err error) (Answer, error) {
	if err == nil {
		err = a.Error()
	}
	return a, err
}
