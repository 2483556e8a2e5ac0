package diagnose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/internal/wait"
)

// perKeyData is what a member with OrderThroughRetries announces to its group: nothing can be released then.
const perKeyData = "redeliver OrderThroughRetries"

// UserData returns what a member of a policy announces to its group.
func UserData(policy redeliver.Policy) []byte {
	if policy.Order == redeliver.OrderThroughRetries {
		return []byte(perKeyData)
	}
	return nil
}

// IsPerKey reports whether a member that reads the origin announces OrderThroughRetries.
func IsPerKey(found *sarama.GroupDescription, origin string) bool {
	for _, m := range found.Members {
		meta, err := m.GetMemberMetadata()
		if err == nil && meta != nil && string(meta.UserData) == perKeyData && slices.Contains(meta.Topics, origin) {
			return true
		}
	}
	return false
}

// readers is the set of topics that the members of a group read. It is nil if that is not known.
type readers map[string]bool

// read reports whether a member reads a topic. It returns true if that is not known.
func (r readers) read(topic string) bool { return r == nil || r[topic] }

const (
	maxGroupTries = 20
	groupPause    = 500 * time.Millisecond
)

// findReaders asks the coordinator what the members of the group read. If it gets no answer, it returns nil and adds the
// reason to NotChecked.
func (d *examination) findReaders(ctx context.Context) readers {
	unknown := func(why string) readers {
		d.NotChecked = append(d.NotChecked, "the members of group "+d.layout.Group+" ("+why+")")
		return nil
	}
	why := ""
	for range maxGroupTries {
		found, err := d.admin.DescribeGroup(d.layout.Group)
		switch {
		case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
			return unknown("the user needs Describe on the group")
		case isCoordinatorMoving(err):
			why = err.Error()
		case err != nil:
			return unknown(err.Error())
		case slices.Contains([]string{"Stable", "Empty", "Dead"}, found.State):
			d.Checked = append(d.Checked, "the members of group "+d.layout.Group)
			return readersOf(found)
		default:
			why = "it is " + found.State // it rebalances
		}
		if wait.For(ctx, groupPause) != nil {
			return unknown(ctx.Err().Error())
		}
	}
	return unknown(why)
}

// isCoordinatorMoving reports whether the group's coordinator is changing or has just started.
func isCoordinatorMoving(err error) bool {
	return errors.Is(err, sarama.ErrOffsetsLoadInProgress) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable) || errors.Is(err, sarama.ErrNotCoordinatorForConsumer)
}

// readersOf returns the topics that the members of a group read.
func readersOf(found *sarama.GroupDescription) readers {
	r := make(readers)
	for _, m := range found.Members {
		if meta, err := m.GetMemberMetadata(); err == nil && meta != nil {
			for _, t := range meta.Topics {
				r[t] = true
			}
		}
	}
	return r
}

// lag has the unsettled offsets of a topic, by partition.
type lag map[int32]unsettled

type unsettled struct{ from, end int64 }

func (u unsettled) count() int64 { return u.end - u.from }

func (l lag) total() (n int64) {
	for _, u := range l {
		n += max(0, u.count())
	}
	return n
}

// maxMarkers bounds the offsets at the end of a partition that may all be markers of transactions.
const maxMarkers = 100

// lags returns the unsettled offsets of a group, by topic. It returns nil without the right to ask.
func (d *examination) lags(ctx context.Context, group string, topics []string) (map[string]lag, error) {
	partitions := make(map[string][]int32)
	for _, topic := range topics {
		all, err := d.admin.Client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("kafka: asking for the partitions of %s: %w", topic, err)
		}
		partitions[topic] = all
	}
	committed, err := d.admin.GroupOffsetsIfAny(group, partitions)
	for try := 1; isCoordinatorMoving(err) && try < maxGroupTries && wait.For(ctx, groupPause) == nil; try++ {
		committed, err = d.admin.GroupOffsetsIfAny(group, partitions)
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return nil, nil //nolint:nilnil // it is unknown, which is no failure
	}
	if err != nil {
		return nil, err
	}
	lags := make(map[string]lag, len(topics))
	for _, topic := range topics {
		log := topiclog.Reader{Client: d.admin.Client, Topic: topic}
		lags[topic] = make(lag)
		for _, p := range partitions[topic] {
			start, end, err := log.Bounds(ctx, p)
			if err != nil {
				return nil, err
			}
			from := start
			if offset, err := committed.Offset(topic, p); err == nil && offset > start {
				from = min(offset, end)
			}
			if n := end - from; n > 0 && n <= maxMarkers {
				// Members do not commit markers of transactions.
				if page, err := log.Read(ctx, p, from); err == nil && len(page.Records) == 0 {
					from = min(max(from, page.Next), end)
				}
			}
			lags[topic][p] = unsettled{from, end}
		}
	}
	return lags, nil
}
