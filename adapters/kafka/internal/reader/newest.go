package reader

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
)

// commitNewest commits the end of the origin for all partitions without an offset, those of other members included, in
// one request. It does so once in the life of a group that starts at Newest. Later, a partition without an offset is
// new and is read from its beginning. Our metadata on any partition shows that the ends were committed; offsets that
// another client committed have no such metadata. moved reports whether an offset of the given partitions was
// committed.
func (s *Session) commitNewest(sess sarama.ConsumerGroupSession, partitions []int32) (moved bool, err error) {
	if len(partitions) == 0 {
		return false, nil
	}
	r := s.reader
	origin, client := r.Layout.Origin, r.admin().Client
	all, err := client.Partitions(origin)
	if err != nil {
		return false, fmt.Errorf("kafka: asking for the partitions of %s: %w", origin, err)
	}
	all = slices.Compact(slices.Sorted(slices.Values(append(all, partitions...)))) // the client may not know new ones yet
	committed, err := r.admin().GroupOffsets(r.Layout.Group, map[string][]int32{origin: all})
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
	text, _ := commitmeta.Ended(r.Owner, s.topicIDs[origin]).Text(0, nil)
	err = r.admin().CommitAll(r.Layout.Group, sess, origin, offsets, text)
	if errors.Is(err, sarama.ErrOffsetMetadataTooLarge) {
		text = ""
		err = r.admin().CommitAll(r.Layout.Group, sess, origin, offsets, text)
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
