package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
)

// session handles one consumer group session. sarama calls ConsumeClaim for each partition in a goroutine, the lane's.
type session struct {
	reader  *reader
	commits *settle.Committer
	keys    perkey.Session // used only if the Order is PerKey
}

// Setup implements [sarama.ConsumerGroupHandler]. If the group starts at Newest, Setup commits the end of the origin's
// partitions that have no offset. Our client itself starts at Oldest: with Newest, delay topics would lose messages
// that were written before their first claim, and all messages after the group's offsets expired.
func (s *session) Setup(sess sarama.ConsumerGroupSession) error {
	r := s.reader
	ids, err := r.client.admin.TopicIDs(append(slices.Collect(maps.Keys(r.levels)), r.layout.Origin)...)
	if err != nil {
		return err
	}
	r.topicIDs = ids
	claims := r.ownClaims(sess.Claims())
	if missing := ids.Missing(claims); missing != "" {
		return fmt.Errorf("kafka: topic %s: %w", missing, sarama.ErrUnknownTopicOrPartition)
	}
	if err := r.reportNoOffsets(sess.Context(), sess.Claims()); err != nil {
		return err
	}
	if r.client.cfg.startsAtNewest() {
		if _, err := r.commitNewest(sess, sess.Claims()[r.layout.Origin]); err != nil {
			return err
		}
	}
	if r.perKey() {
		if err := r.checkCopartitioned(sess); err != nil {
			return err
		}
	}
	found, err := r.readMetas(sess.Context(), claims)
	if err != nil {
		return err
	}
	r.metas.set(found)
	if err := r.resetRecreated(sess); err != nil {
		return err
	}
	r.keeper.BeginSession(r.levels)
	r.keeper.Recheck()
	r.reportJoined(claimsText(r.layout.Origin, sess.Claims()))
	return nil
}

// reportNoOffsets reports that the group has no offsets although its levels have records. Its offsets expired or were
// deleted, or messages were published with a delay before its first member. All records run, even settled ones that the
// group had no right to delete.
func (r *reader) reportNoOffsets(ctx context.Context, claims map[string][]int32) error {
	origin, client := r.layout.Origin, r.client.admin.Client
	all, err := client.Partitions(origin)
	if err != nil {
		return fmt.Errorf("kafka: asking for the partitions of %s: %w", origin, err)
	}
	committed, err := r.client.admin.GroupOffsets(r.layout.Group, map[string][]int32{origin: all})
	if err != nil {
		return err
	}
	for _, p := range all {
		if offset, err := committed.Offset(origin, p); err != nil || offset >= 0 {
			return err
		}
	}
	for topic := range r.levels {
		log, n := topiclog.Reader{Client: client, Topic: topic}, int64(0)
		for _, p := range claims[topic] {
			start, end, err := log.Bounds(ctx, p)
			if err != nil {
				return err
			}
			n += end - start
		}
		if n > 0 {
			r.sub.EmitChange(redeliver.ChangeReadFromStart, fmt.Sprintf("the group has no offsets, so %d records of %s run; those that had succeeded, and that it may not delete, run again", n, topic), nil)
		}
	}
	return nil
}

// Cleanup implements [sarama.ConsumerGroupHandler].
func (s *session) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim implements [sarama.ConsumerGroupHandler]. It reports its error, because sarama gives it only to
// listeners of the group's errors.
func (s *session) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	err := s.consume(sess, claim)
	if err != nil && sess.Context().Err() == nil {
		s.reader.reportUnread(claim.Topic(), claim.Partition(), " in the next session", err)
	}
	return err
}

func (s *session) consume(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	r := s.reader
	if claim.Topic() == r.layout.Origin && claim.InitialOffset() == sarama.OffsetOldest && r.client.cfg.startsAtNewest() {
		// A cooperative rebalance brought a partition that Setup did not see. Start a new session when it has an
		// offset. This happens once in the life of a partition.
		moved, err := r.commitNewest(sess, []int32{claim.Partition()})
		if err != nil {
			return err
		}
		if moved {
			sess.Commit()
			return nil
		}
	}
	from := claim.InitialOffset()
	if from == sarama.OffsetOldest {
		// The partition has no valid offset. useMeta replaces an offset behind the end of a truncated log.
		oldest, err := r.client.admin.Client.GetOffset(claim.Topic(), claim.Partition(), sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("kafka: asking for the start of %s/%d: %w", claim.Topic(), claim.Partition(), err)
		}
		from = oldest
	}
	meta, err := r.readMeta(sess.Context(), claim.Topic(), claim.Partition())
	if err != nil {
		return err
	}
	if r.topicIDs.Differs(claim.Topic(), meta.meta.Topic) {
		return nil // A cooperative rebalance brought it. The next session reads it from its beginning, see Setup.
	}
	if claim.InitialOffset() == sarama.OffsetOldest && meta.offset > from {
		r.sub.EmitChange(redeliver.ChangeReadFromStart, fmt.Sprintf("%s/%d ends before offset %d, which the group had committed: it has lost records, or is a copy; what is left of it runs again from offset %d",
			claim.Topic(), claim.Partition(), meta.offset, from), nil)
	}
	r.keeper.Recheck() // members may come and go in a cooperative session
	r.commands.Await(sess.Context())
	var queues *perkey.Queues
	if r.perKey() {
		if queues = s.keyQueues(sess, claim, from); queues == nil {
			return nil
		}
	}
	src := newSource(r, sess, claim, s.commits, from, meta)
	if queues != nil {
		src.keys = perkey.NewGate(perkey.Lane{
			Sub: r.sub, Codec: r.codec(), Topic: src.topic, Partition: src.partition, OnLevel: src.onLevel, MaxWaiting: r.client.cfg.MaxWaiting,
			Post: func(f func()) bool { return src.lane.Post(f) },
		}, queues)
	}
	src.run()
	return nil
}

func (c Config) startsAtNewest() bool {
	return c.Sarama.Consumer.Offsets.Initial == sarama.OffsetNewest
}

// commitNewest commits the end of the origin for all partitions without an offset, those of other members included, in
// one request. It does so once in the life of a group that starts at Newest. Later, a partition without an offset is
// new and is read from its beginning. Our metadata on any partition shows that it was done; offsets that another
// client committed have none. moved reports whether it committed one of partitions.
func (r *reader) commitNewest(sess sarama.ConsumerGroupSession, partitions []int32) (moved bool, err error) {
	if len(partitions) == 0 {
		return false, nil
	}
	origin, client := r.layout.Origin, r.client.admin.Client
	all, err := client.Partitions(origin)
	if err != nil {
		return false, fmt.Errorf("kafka: asking for the partitions of %s: %w", origin, err)
	}
	all = slices.Compact(slices.Sorted(slices.Values(append(all, partitions...)))) // the client may not know new ones yet
	committed, err := r.client.admin.GroupOffsets(r.layout.Group, map[string][]int32{origin: all})
	if err != nil {
		return false, err
	}
	begun := false
	var without []int32
	for _, p := range all {
		found, err := metaOf(committed, origin, p)
		if err != nil {
			return false, err
		}
		begun = begun || found.meta.Known()
		if found.offset < 0 {
			without = append(without, p)
		} else if slices.Contains(partitions, p) { // another member may have committed it after the session read its offsets
			sess.MarkOffset(origin, p, found.offset, committed.Metadata(origin, p))
		}
	}
	if begun || len(without) == 0 {
		return false, nil
	}
	offsets := make(map[int32]int64, len(without))
	for _, p := range without {
		if offsets[p], err = client.GetOffset(origin, p, sarama.OffsetNewest); err != nil {
			return false, fmt.Errorf("kafka: asking for the end of %s/%d: %w", origin, p, err)
		}
	}
	text, _ := commitmeta.Ended(r.client.owner, r.topicIDs[origin]).Text(0, nil)
	err = r.client.admin.CommitAll(r.layout.Group, sess, origin, offsets, text)
	if errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
		text = ""
		err = r.client.admin.CommitAll(r.layout.Group, sess, origin, offsets, text)
	}
	if err != nil {
		return false, err
	}
	for p, offset := range offsets {
		if slices.Contains(partitions, p) {
			sess.MarkOffset(origin, p, offset, text)
			moved = true
		}
	}
	return moved, nil
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
