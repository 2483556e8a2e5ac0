package reader

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/internal/wait"
)

// claimMeta is a committed offset and its metadata.
type claimMeta struct {
	offset int64
	meta   commitmeta.Meta
}

// maxMetaTries bounds how often a session asks again for metadata. The pauses double, to six seconds in all.
const maxMetaTries = 7

// readMetas reads the metadata of partitions in one request. It tries again, because after a crash the group's
// coordinator may be moving.
func (s *Session) readMetas(ctx context.Context, claims map[string][]int32) (found map[string]map[int32]claimMeta, err error) {
	for try := 0; ; try++ {
		found, err = fetchMetas(s.reader.admin(), s.reader.Layout.Group, claims)
		if err == nil || try == maxMetaTries {
			return found, err
		}
		if err := wait.For(ctx, cluster.CommitRetryPause<<try); err != nil {
			return nil, err
		}
	}
}

// fetchMetas reads the metadata of partitions.
func fetchMetas(a cluster.Admin, group string, claims map[string][]int32) (map[string]map[int32]claimMeta, error) {
	found := make(map[string]map[int32]claimMeta, len(claims))
	if len(claims) == 0 {
		return found, nil
	}
	committed, err := a.GroupOffsets(group, claims)
	if err != nil {
		return nil, err
	}
	for topic, partitions := range claims {
		found[topic] = make(map[int32]claimMeta, len(partitions))
		for _, p := range partitions {
			if found[topic][p], err = metaOf(committed, topic, p); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// readMeta returns a partition's metadata before its lane commits. It asks the broker if a cooperative rebalance added
// the partition, or took it away and brought it back before a lane took what Setup had read.
func (s *Session) readMeta(ctx context.Context, claim sarama.ConsumerGroupClaim) (claimMeta, error) {
	topic, partition, from := claim.Topic(), claim.Partition(), claim.InitialOffset()
	s.mu.Lock()
	own, ok := s.metas[topic][partition]
	delete(s.metas[topic], partition)
	s.mu.Unlock()
	if ok && (from < 0 || own.offset == from) {
		return own, nil
	}
	found, err := s.readMetas(ctx, map[string][]int32{topic: {partition}})
	return found[topic][partition], err
}

// metaOf returns the committed offset and metadata of a partition.
func metaOf(committed cluster.GroupOffsets, topic string, partition int32) (claimMeta, error) {
	offset, err := committed.Offset(topic, partition)
	if err != nil {
		return claimMeta{}, err
	}
	return claimMeta{offset, commitmeta.Parse(committed.Metadata(topic, partition)).At(offset)}, nil
}

// reportUncounted reports, once, that crashes are not counted for now.
func (r *Reader) reportUncounted(topic string, partition int32, err error) {
	if !r.reportedUncounted.Swap(true) {
		r.Sub.EmitChange(redeliver.ChangeCrashesUncounted, fmt.Sprintf("%s/%d: the commit of what runs was refused; messages run all the same, and crashes are not counted. "+
			"Check whether the broker accepts commits of group %s with metadata of 4096 bytes (offset.metadata.max.bytes)", topic, partition, r.Layout.Group), err)
	}
}

// reportInMemory reports that commits do not have the attempts of a message that keeps its place.
func (r *Reader) reportInMemory(topic string, partition int32, err error) {
	r.reportAtIntervals("attempts in memory", redeliver.ChangeAttemptsInMemory, fmt.Sprintf("%s/%d: a commit has no room for the attempts of the message that keeps its place; they begin again in the next process. "+
		"Check whether the broker accepts commits of group %s with metadata of 100 bytes or more (offset.metadata.max.bytes)", topic, partition, r.Layout.Group), err)
}

// ownClaims returns those of a session's claims that the lanes read.
func (s *Session) ownClaims(claims map[string][]int32) map[string][]int32 {
	own := make(map[string][]int32, len(claims))
	for topic, partitions := range claims {
		if s.Reads(topic) {
			own[topic] = partitions
		}
	}
	return own
}

// settleConfig interprets what the last owner of the partition left, and reports deleted records.
func (s *source) settleConfig(sess sarama.ConsumerGroupSession, last claimMeta) settle.Config {
	session, from := s.session, s.from
	r := session.reader
	if lost := from - last.offset; last.offset >= 0 && lost > 0 {
		r.Sub.Emit(redeliver.MessagesLost{
			Origin: r.Layout.Origin, Group: r.Layout.Group, Where: fmt.Sprintf("%s/%d", s.topic, s.partition), Count: lost,
			Detail: fmt.Sprintf("the log begins at offset %d, and the group had settled only the offsets below %d: unsettled messages were deleted, by hand or by a retention limit. See the topic's retention.ms and retention.bytes", from, last.offset),
		})
	}
	slots := r.Sub.MaxInFlight
	cfg := settle.Config{
		Session: sess, Topic: s.topic, Partition: s.partition,
		Committed: last.offset, Settled: last.meta.Settled, Meta: last.meta,
		ReportInMemory: func(err error) { r.reportInMemory(s.topic, s.partition, err) },
	}
	if s.onLevel {
		slots = r.Sub.MaxRetriesInFlight
		cfg.OnCommit = func(mark int64) { r.sweeper.SetMark(s.topic, s.partition, mark) }
	}
	cfg.Crash = crash.Config{
		Sub: r.Sub, Owner: r.Owner, TopicID: session.topicIDs[s.topic], From: from, LogEnd: s.claim.HighWaterMarkOffset(),
		MaxInFlight: r.Sub.MaxInFlight, Slots: slots / max(1, len(sess.Claims()[s.topic])),
		ReportUncounted: func(err error) { r.reportUncounted(s.topic, s.partition, err) },
	}
	return cfg
}

// resetRecreated makes the session read partitions from their beginning if their committed offsets belong to an earlier
// topic of the same name. Otherwise new records would be skipped. It reports each topic that was created again: the
// metadata of an offset shows that, or the id that the topic had in this reader's last session.
//
// It commits the beginnings. Otherwise a session that settles nothing would leave the offsets of the earlier topic.
func (s *Session) resetRecreated(sess sarama.ConsumerGroupSession) error {
	r := s.reader
	recreated := r.topicIDs.differFrom(s.topicIDs)
	var starts []cluster.OffsetCommit
	for topic, partitions := range s.metas {
		for p, found := range partitions {
			byMemory := recreated[topic] && found.meta.Topic == "" && found.offset >= 0
			if !byMemory && !s.topicIDs.Differs(topic, found.meta.Topic) {
				continue
			}
			recreated[topic] = true
			start, err := s.offsets(topic, []int32{p}, sarama.OffsetOldest)
			if err != nil {
				return err
			}
			starts = append(starts, start...)
			partitions[p] = claimMeta{offset: start[0].Offset}
		}
	}
	if err := s.commitAll(sess, starts); err != nil {
		return err
	}
	for _, c := range starts {
		sess.MarkOffset(c.Topic, c.Partition, c.Offset, c.Metadata)
		sess.ResetOffset(c.Topic, c.Partition, c.Offset, c.Metadata)
	}
	for topic := range recreated {
		if !r.keeper.HasReported(topic, s.topicIDs[topic]) {
			r.Sub.Emit(redeliver.MessagesLost{
				Origin: r.Layout.Origin, Group: r.Layout.Group, Where: topic,
				Detail: "the topic was deleted and created again; its records that had not settled are gone; the new topic is read from its beginning",
			})
		}
	}
	return nil
}
