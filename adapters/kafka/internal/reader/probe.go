package reader

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
)

// probeTimeout bounds one probe.
const probeTimeout = 20 * time.Second

// probeAfter makes the janitor probe if err says that a right is missing: sarama does not say which request, and often
// not of which topic, was refused. The group's own rights are known.
func (r *Reader) probeAfter(err error) error {
	if !cluster.IsDenied(err) {
		return err
	}
	select {
	case r.probeSoon <- struct{}{}:
	default:
	}
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		err = cluster.Explain(cluster.ToGroup("JoinGroup", "Read", r.Layout.Group), err)
	}
	return err
}

// probe makes the requests that a session needs, so that operations knows which of them the broker refuses.
func (r *Reader) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if r.operations.Stops() { // nothing begins, so nothing else commits
		if commits := r.commits.Load(); commits != nil {
			commits.Again()
		}
	}
	existing, err := r.admin().Topics(r.keeper.Expected()...)
	if err != nil && !cluster.IsDenied(err) {
		return
	}
	_, read := r.keeper.Subscription()
	partitions := make(map[string][]int32, len(existing))
	for topic := range existing {
		if _, waits := read[topic]; waits || topic == r.Layout.Origin {
			partitions[topic] = []int32{0}
		}
	}
	_, _ = r.admin().GroupOffsets(r.Layout.Group, partitions)
	for topic := range partitions {
		log := topiclog.Reader{Client: r.admin().Client, Topic: topic}
		if _, end, err := log.Bounds(ctx, 0); err == nil {
			_, _ = log.ReadUpTo(ctx, 0, end, 1)
		}
	}
}
