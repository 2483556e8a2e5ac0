package reader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
)

// Session is one session of a consumer group, for one reader. sarama calls ConsumeClaim for each partition in its own
// goroutine, which runs the lane. In a service's own group, several readers may have sessions in one session of the
// group.
type Session struct {
	reader   *Reader
	commits  *settle.Committer
	levels   map[string]time.Duration // of the topics on which messages wait; 0 for the retry topic
	topicIDs cluster.TopicIDs
	closing  context.Context
	hurry    context.Context // set by Setup; ends when the session ends, and not because of a rebalance
	endHurry context.CancelFunc
	keys     perkey.Session // used only if the Order is OrderThroughRetries

	mu    sync.Mutex
	metas map[string]map[int32]claimMeta // read by Setup; each lane removes its own
}

// NewSession returns the next session, which reads topics. closing ends when the service ends. NewSession calls end when
// the reader should read other topics.
func (r *Reader) NewSession(closing context.Context, topics Topics, commits *settle.Committer, end context.CancelFunc) *Session {
	r.keeper.SetEndSession(end)
	if names, _ := r.keeper.Subscription(); !slices.Equal(names, topics.Names) {
		end() // they have changed since TopicsToRead
	}
	return &Session{reader: r, closing: closing, commits: commits, levels: topics.levels}
}

// Reads reports whether the session's lanes read a topic.
func (s *Session) Reads(topic string) bool {
	_, waits := s.levels[topic]
	return waits || topic == s.reader.Layout.Origin
}

// Setup implements [sarama.ConsumerGroupHandler]. If a new group skips existing records, Setup commits the end of the
// origin's partitions that have no offset. Our client itself starts at Oldest: with Newest, delay topics would lose messages
// that were written before their first claim, and all messages after the group's offsets expired.
func (s *Session) Setup(sess sarama.ConsumerGroupSession) error {
	r := s.reader
	s.hurry, s.endHurry = context.WithCancel(s.closing)
	context.AfterFunc(sess.Context(), func() {
		if !isRebalance(context.Cause(sess.Context())) {
			s.endHurry()
		}
	})
	ids, err := r.admin().TopicIDs(append(slices.Collect(maps.Keys(s.levels)), r.Layout.Origin)...)
	if err != nil {
		return err
	}
	s.topicIDs = ids
	claims := s.ownClaims(sess.Claims())
	if missing := ids.Missing(claims); missing != "" {
		return fmt.Errorf("kafka: topic %s: %w", missing, sarama.ErrUnknownTopicOrPartition)
	}
	if err := s.reportNoOffsets(sess.Context(), sess.Claims()); err != nil {
		return err
	}
	if r.SkipsExisting {
		if _, err := s.skipExisting(sess, sess.Claims()[r.Layout.Origin]); err != nil {
			return err
		}
	}
	if r.isPerKey() {
		if err := s.checkCopartitioned(sess); err != nil {
			return err
		}
	}
	if s.metas, err = s.readMetas(sess.Context(), claims); err != nil {
		return err
	}
	if err := s.resetRecreated(sess); err != nil {
		return err
	}
	r.topicIDs.begin(ids, r.keeper.Expected())
	r.keeper.BeginSession(s.levels)
	r.keeper.Recheck()
	r.reportJoined(claimsText(r.Layout.Origin, sess.Claims()))
	return nil
}

// isRebalance reports whether the cause of a session's end leaves the member in its group. sarama sends heartbeats until
// the partitions are drained, and the group waits for that until its rebalance timeout.
func isRebalance(cause error) bool {
	for _, err := range []error{sarama.ErrRebalanceInProgress, sarama.ErrSessionPartitionCountChanged, sarama.ErrSessionConsumeClaimExited, errTopicsChanged} {
		if errors.Is(cause, err) {
			return true
		}
	}
	return false
}

// reportNoOffsets reports that the group has no offsets although its levels have records. Its offsets expired or were
// deleted, or messages were published with a delay before its first member. All records run, even settled ones that the
// group had no right to delete.
func (s *Session) reportNoOffsets(ctx context.Context, claims map[string][]int32) error {
	r := s.reader
	origin, client := r.Layout.Origin, r.admin().Client
	all, err := client.Partitions(origin)
	if err != nil {
		return fmt.Errorf("kafka: asking for the partitions of %s: %w", origin, err)
	}
	committed, err := r.admin().GroupOffsets(r.Layout.Group, map[string][]int32{origin: all})
	if err != nil {
		return err
	}
	for _, p := range all {
		if offset, err := committed.Offset(origin, p); err != nil || offset >= 0 {
			return err
		}
	}
	for topic := range s.levels {
		log, n := topiclog.Reader{Client: client, Topic: topic}, int64(0)
		for _, p := range claims[topic] {
			start, end, err := log.Bounds(ctx, p)
			if err != nil {
				return err
			}
			n += end - start
		}
		if n > 0 {
			r.Sub.EmitChange(redeliver.ChangeReadFromStart, fmt.Sprintf("the group has no offsets, so %d records of %s run; if the group may not delete records, those that succeeded run again, too", n, topic), nil)
		}
	}
	return nil
}

// Cleanup implements [sarama.ConsumerGroupHandler].
func (s *Session) Cleanup(sarama.ConsumerGroupSession) error {
	s.reader.topicIDs.end()
	if s.hurry != nil { // otherwise Setup was not called
		s.reader.countCuts(s.hurry.Err() == nil)
		s.endHurry()
	}
	return nil
}

// ConsumeClaim implements [sarama.ConsumerGroupHandler]. It reports its error, because sarama gives it only to
// listeners of the group's errors.
func (s *Session) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	err := s.consume(sess, claim)
	if err != nil && sess.Context().Err() == nil && !cluster.IsDenied(err) { // that is recorded
		s.reader.reportUnread(claim.Topic(), claim.Partition(), " in the next session", err)
	}
	return err
}

// consume reads a claim until the partition is revoked or the session ends.
func (s *Session) consume(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	r := s.reader
	if claim.Topic() == r.Layout.Origin && claim.InitialOffset() == sarama.OffsetOldest && r.SkipsExisting {
		// A cooperative rebalance brought a partition that Setup did not see. Start a new session when it has an
		// offset. This happens once in the life of a partition.
		moved, err := s.skipExisting(sess, []int32{claim.Partition()})
		if err != nil {
			return err
		}
		if moved {
			return nil
		}
	}
	from := claim.InitialOffset()
	if from == sarama.OffsetOldest {
		// The partition has no valid offset. The first commit replaces an offset behind the end of a truncated log.
		oldest, err := r.admin().Client.GetOffset(claim.Topic(), claim.Partition(), sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("kafka: asking for the start of %s/%d: %w", claim.Topic(), claim.Partition(), err)
		}
		from = oldest
	}
	meta, err := s.readMeta(sess.Context(), claim)
	if err != nil {
		return err
	}
	if s.topicIDs.Differs(claim.Topic(), meta.meta.Topic) {
		return nil // A cooperative rebalance brought the partition. The next Setup resets it to its beginning.
	}
	if claim.InitialOffset() >= 0 && meta.offset < 0 {
		return nil // The topic was deleted, and the offset with it, after sarama had asked for it. The next session asks again.
	}
	if claim.InitialOffset() == sarama.OffsetOldest && meta.offset > from {
		r.Sub.EmitChange(redeliver.ChangeReadFromStart, fmt.Sprintf("%s/%d ends before offset %d, which the group had committed: it has lost records, or is a copy; its records run again from offset %d",
			claim.Topic(), claim.Partition(), meta.offset, from), nil)
	}
	if meta, err = s.believe(sess.Context(), claim.Topic(), claim.Partition(), meta, from); err != nil {
		return err
	}
	r.keeper.Recheck() // members may come and go in a cooperative session
	r.commands.Await(sess.Context())
	var queues *perkey.Queues
	if r.isPerKey() {
		if queues = s.keyQueues(sess, claim, from); queues == nil {
			return nil
		}
	}
	src := newSource(s, sess, claim, from, meta)
	if queues != nil {
		src.keys = perkey.NewGate(perkey.Lane{
			Sub: r.Sub, Codec: r.codec(), Topic: src.topic, Partition: src.partition, OnLevel: src.onLevel, MaxWaiting: r.MaxWaiting,
			Post: func(f func()) bool { return src.lane.Post(f) }, End: claim.HighWaterMarkOffset,
		}, queues)
	}
	src.run(sess.Context())
	return nil
}

// claimsText counts partitions, because a policy with eight levels has hundreds.
func claimsText(origin string, claims map[string][]int32) string {
	ours := 0
	for topic, partitions := range claims {
		if topic != origin {
			ours += len(partitions)
		}
	}
	return fmt.Sprintf("partitions: %d of %s, %d of its retry topics", len(claims[origin]), origin, ours)
}
