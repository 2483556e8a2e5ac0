package reader

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/check"
)

// beginning is what a group has committed on its topics.
type beginning struct {
	// begun reports whether the group has read these topics with redeliver. An offset on a level shows that, whatever
	// its metadata is, because no other client reads our topics. Kafka deletes the offsets of the origin with the
	// origin. On the origin only our metadata shows it: another client may have committed there before.
	begun   bool
	without []int32             // partitions of the origin without an offset
	origin  map[int32]committed // the others
	levels  map[string][]int32  // the partitions of the levels
}

// committed is an offset as it was committed.
type committed struct {
	offset int64
	text   string
}

// readBeginning asks what a group has committed. partitions are those of the origin that the client may not know yet.
func readBeginning(a cluster.Admin, group, origin string, levels []string, partitions []int32) (b beginning, err error) {
	existing, err := a.Topics(append(slices.Clone(levels), origin)...)
	if err != nil {
		return b, err
	}
	ask := make(map[string][]int32, len(existing))
	for topic, t := range existing {
		for _, p := range t.Partitions {
			ask[topic] = append(ask[topic], p.ID)
		}
	}
	all := slices.Compact(slices.Sorted(slices.Values(append(ask[origin], partitions...))))
	ask[origin] = all
	found, err := a.GroupOffsetsIfAny(group, ask)
	if err != nil {
		return b, err
	}
	delete(ask, origin)
	b = beginning{levels: ask, origin: make(map[int32]committed)}
	for _, p := range all {
		last, err := metaOf(found, origin, p)
		if err != nil {
			return b, err
		}
		if last.offset < 0 {
			b.without = append(b.without, p)
			continue
		}
		b.begun = b.begun || last.meta.Known()
		b.origin[p] = committed{last.offset, found.Metadata(origin, p)}
	}
	for topic, partitions := range b.levels {
		for _, p := range partitions {
			offset, err := found.Offset(topic, p)
			if err != nil {
				return b, err
			}
			b.begun = b.begun || offset >= 0
		}
	}
	return b, nil
}

// CheckNewest refuses a new group that is configured to start at the end of an origin with messages. It returns nil if
// the group has begun, or if there is nothing to skip: such a group starts at the beginning, so that it also reads what
// is written between this check and its first session.
func CheckNewest(a cluster.Admin, l *topology.Layout) error {
	var levels []string
	for _, t := range l.Topics {
		if t.Waits() {
			levels = append(levels, t.Name)
		}
	}
	b, err := readBeginning(a, l.Group, l.Origin, levels, nil)
	if err != nil || b.begun {
		return err
	}
	var skipped int64
	for _, p := range b.without {
		var ends [2]int64
		for i, at := range []int64{sarama.OffsetOldest, sarama.OffsetNewest} {
			if ends[i], err = a.Client.GetOffset(l.Origin, p, at); err != nil {
				return cluster.Explain(cluster.ToTopic("ListOffsets", "Describe", l.Origin), fmt.Errorf("kafka: asking for the offsets of %s/%d: %w", l.Origin, p, err))
			}
		}
		skipped += ends[1] - ends[0]
	}
	if skipped == 0 {
		return nil
	}
	var ps check.Problems
	ps.Add("Sarama.Consumer.Offsets.Initial", "OffsetNewest, sarama's default", fmt.Sprintf(
		"group %s has no offset for %d records of topic %s and would skip them: set it to sarama.OffsetOldest to handle them, or set Config.SkipExisting to skip them",
		l.Group, skipped, l.Origin))
	return fmt.Errorf("kafka: %w", ps.Err())
}

// skipExisting commits the end of the origin for all partitions without an offset, those of other members included. It
// does so once in the life of a group. Then it commits an offset on each level, which shows that this was done. From
// then on a partition without an offset is new, or its topic is, and it is read from its beginning. moved reports whether an offset of the given partitions was committed.
func (s *Session) skipExisting(sess sarama.ConsumerGroupSession, partitions []int32) (moved bool, err error) {
	r := s.reader
	if len(partitions) == 0 || r.hasBegun.Load() {
		return false, nil
	}
	origin := r.Layout.Origin
	b, err := readBeginning(r.admin(), r.Layout.Group, origin, slices.Collect(maps.Keys(s.levels)), partitions)
	if err != nil {
		return false, err
	}
	for _, p := range partitions { // another member may have committed it after the session read its offsets
		if c, ok := b.origin[p]; ok {
			sess.MarkOffset(origin, p, c.offset, c.text)
		}
	}
	if b.begun {
		r.hasBegun.Store(true)
		return false, nil
	}
	ends, err := s.offsets(origin, b.without, sarama.OffsetNewest)
	if err != nil {
		return false, err
	}
	if err := s.commitAll(sess, ends); err != nil {
		return false, err
	}
	var starts []cluster.OffsetCommit
	for topic := range b.levels {
		first, err := s.offsets(topic, []int32{0}, sarama.OffsetOldest)
		if err != nil {
			return false, err
		}
		starts = append(starts, first...)
	}
	if err := s.commitAll(sess, starts); err != nil {
		return false, err
	}
	for _, c := range ends {
		if slices.Contains(partitions, c.Partition) {
			sess.MarkOffset(origin, c.Partition, c.Offset, c.Metadata)
			moved = true
		}
	}
	r.hasBegun.Store(true)
	return moved, nil
}

// offsets returns commits of the start or the end of partitions.
func (s *Session) offsets(topic string, partitions []int32, at int64) (all []cluster.OffsetCommit, err error) {
	text, _ := commitmeta.Ended(s.reader.Owner, s.topicIDs[topic]).Text(0, nil)
	for _, p := range partitions {
		offset, err := s.reader.admin().Client.GetOffset(topic, p, at)
		if err != nil {
			return nil, fmt.Errorf("kafka: asking for the offsets of %s/%d: %w", topic, p, err)
		}
		all = append(all, cluster.OffsetCommit{Topic: topic, Partition: p, Offset: offset, Metadata: text})
	}
	return all, nil
}

// commitAll commits offsets, without their metadata if the broker refuses it.
func (s *Session) commitAll(sess sarama.ConsumerGroupSession, all []cluster.OffsetCommit) error {
	if len(all) == 0 {
		return nil
	}
	r := s.reader
	err := r.admin().CommitAll(r.Layout.Group, sess, all)
	if errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
		for i := range all {
			all[i].Metadata = ""
		}
		err = r.admin().CommitAll(r.Layout.Group, sess, all)
	}
	return err
}
