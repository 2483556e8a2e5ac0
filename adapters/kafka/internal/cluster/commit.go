package cluster

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/internal/wait"
)

// CommitRetryPause is the pause after a failed commit, while the group rebalances or its coordinator moves.
const CommitRetryPause = 50 * time.Millisecond

// OffsetCommit is one offset to commit.
type OffsetCommit struct {
	Topic     string
	Partition int32
	Offset    int64
	Metadata  string
}

// Commit commits offsets in one request, and returns the answer to each. It does not use sarama's own commit, which
// does not return the answer and waits behind the fetches of the group's connection.
func (a Admin) Commit(group string, sess sarama.ConsumerGroupSession, all []OffsetCommit) []error {
	errs := make([]error, len(all))
	req := &sarama.OffsetCommitRequest{
		ConsumerGroup: group, ConsumerID: sess.MemberID(), ConsumerGroupGeneration: sess.GenerationID(),
		RetentionTime: -1, Version: commitVersion(a.Client.Config().Version),
	}
	for _, c := range all {
		req.AddBlockWithLeaderEpoch(c.Topic, c.Partition, c.Offset, -1, 0, c.Metadata)
	}
	coordinator, err := a.Client.Coordinator(group)
	var res *sarama.OffsetCommitResponse
	if err == nil {
		if res, err = coordinator.CommitOffset(req); err != nil {
			_ = coordinator.Close() // the next try connects again
			_ = a.Client.RefreshCoordinator(group)
		}
	}
	for i, c := range all {
		if err != nil {
			errs[i] = fmt.Errorf("kafka: committing %s/%d: %w", c.Topic, c.Partition, err)
		} else if code, ok := res.Errors[c.Topic][c.Partition]; !ok {
			errs[i] = sarama.ErrUnknown
		} else if code != sarama.ErrNoError {
			errs[i] = code
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, sarama.ErrNotCoordinatorForConsumer) || errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable)
	}) {
		_ = a.Client.RefreshCoordinator(group)
	}
	return errs
}

// RecordCommits records the results of commits to a group, for the group and for each topic.
func (a Admin) RecordCommits(group string, all []OffsetCommit, errs []error) {
	results := make(map[Request]error)
	toGroup := ToGroup(commitRequest, "Read", group)
	for i, c := range all {
		err := errs[i]
		if about := commitOf(c.Topic, group, err); results[about] == nil {
			results[about] = err
		}
		if _, refused := results[toGroup]; !refused && (err == nil || errors.Is(err, sarama.ErrTopicAuthorizationFailed)) {
			results[toGroup] = nil
		}
	}
	for r, err := range results {
		if IsFenced(err) || errors.Is(err, sarama.ErrRebalanceInProgress) || errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
			continue // the next session or a smaller commit may succeed
		}
		if err != nil {
			err = fmt.Errorf("kafka: group %s cannot commit, so settled messages would run again in the next process: %w", group, err)
		}
		_ = Done(a.Client, r, err)
	}
}

const commitRequest = "OffsetCommit"

// commitOf returns what the result of a commit is about.
func commitOf(topic, group string, err error) Request {
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return ToGroup(commitRequest, "Read", group)
	}
	return ToTopic(commitRequest, "Read", topic)
}

// IsPermanentRefusal reports whether the same commit fails however often it is tried.
func IsPermanentRefusal(err error) bool {
	return errors.Is(err, sarama.ErrOffsetMetadataTooLarge) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

// IsFenced reports whether err says that the session is no longer part of its group.
func IsFenced(err error) bool {
	return errors.Is(err, sarama.ErrIllegalGeneration) || errors.Is(err, sarama.ErrUnknownMemberId) || errors.Is(err, sarama.ErrFencedInstancedId)
}

// commitVersion returns a version of the request without the name of a static member.
func commitVersion(v sarama.KafkaVersion) int16 {
	switch {
	case v.IsAtLeast(sarama.V2_1_0_0):
		return 6
	case v.IsAtLeast(sarama.V2_0_0_0):
		return 4
	default:
		return 3
	}
}

// CommitAll commits offsets. It tries until all are accepted, one is refused, or sess ends.
func (a Admin) CommitAll(group string, sess sarama.ConsumerGroupSession, pending []OffsetCommit) error {
	for {
		var retry []OffsetCommit
		for i, err := range a.Commit(group, sess, pending) {
			switch {
			case err == nil:
			case IsPermanentRefusal(err), IsFenced(err):
				err = fmt.Errorf("kafka: committing %s/%d for group %s: %w", pending[i].Topic, pending[i].Partition, group, err)
				return Explain(commitOf(pending[i].Topic, group, err), err)
			default:
				retry = append(retry, pending[i])
			}
		}
		if pending = retry; len(pending) == 0 {
			return nil
		}
		if err := wait.For(sess.Context(), CommitRetryPause); err != nil {
			return fmt.Errorf("kafka: committing %s for group %s: %w", pending[0].Topic, group, err)
		}
	}
}
