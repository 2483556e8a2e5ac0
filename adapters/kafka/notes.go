package kafka

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// notes are what the last owners of a session's partitions have noted beside their offsets.
type notes struct {
	mu    sync.Mutex
	found map[string]map[int32]foundNote // when the session began, until a lane takes it
	blind bool                           // told that notes cannot be written
}

// foundNote is what stood beside an offset.
type foundNote struct {
	offset int64
	note   note
}

const (
	// noteAgain is the pause before a commit that was not taken is tried again: the
	// group rebalances, or its coordinator moves.
	noteAgain = 50 * time.Millisecond
	// heedTries is how often a note that could not be read is asked for again, with twice
	// the pause each time: for six seconds in all.
	heedTries = 7
)

// newOwner is a name under which one Client writes its notes.
func newOwner() string { return strings.ToLower(rand.Text()[:8]) }

// begin reads, with one request, what stands beside the offsets of a session's
// partitions. Where that fails, each lane asks for itself.
func (n *notes) begin(a admin, group string, claims map[string][]int32) {
	found := make(map[string]map[int32]foundNote, len(claims))
	if len(claims) == 0 {
		return
	}
	if committed, err := a.committed(group, claims); err == nil {
		for topic, partitions := range claims {
			found[topic] = make(map[int32]foundNote, len(partitions))
			for _, p := range partitions {
				if f, err := committed.note(topic, p); err == nil {
					found[topic][p] = f
				}
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = found
}

// take is what stands beside the offset of a partition, before its lane commits.
// A partition that a cooperative rebalance brought is asked for by itself.
func (n *notes) take(a admin, group, topic string, partition int32) (foundNote, error) {
	n.mu.Lock()
	f, ok := n.found[topic][partition]
	delete(n.found[topic], partition)
	n.mu.Unlock()
	if ok {
		return f, nil
	}
	return a.noted(group, topic, partition)
}

// noted asks what stands beside the offset of a partition.
func (a admin) noted(group, topic string, partition int32) (foundNote, error) {
	committed, err := a.committed(group, map[string][]int32{topic: {partition}})
	if err != nil {
		return foundNote{}, err
	}
	return committed.note(topic, partition)
}

// note is what stands beside the offset of one of the partitions.
func (c commits) note(topic string, partition int32) (foundNote, error) {
	offset, err := c.of(topic, partition)
	if err != nil {
		return foundNote{}, err
	}
	return foundNote{offset, parseNote(c.found.GetBlock(topic, partition).Metadata)}, nil
}

// tellBlind tells, once, that crashes are not counted for now.
func (r *reader) tellBlind(topic string, partition int32, err error) {
	r.notes.mu.Lock()
	was := r.notes.blind
	r.notes.blind = true
	r.notes.mu.Unlock()
	if !was {
		r.tell(redeliver.ChangeCrashesUncounted, fmt.Sprintf("%s/%d: what runs could not be noted beside the offset; it runs all the same. "+
			"Look whether the broker takes commits of group %s, with metadata of 4096 bytes (offset.metadata.max.bytes)", topic, partition, r.layout.group), err)
	}
}

// mine are the claims of a session that the reader's lanes are to read.
func (r *reader) mine(claims map[string][]int32) map[string][]int32 {
	own := make(map[string][]int32, len(claims))
	for topic, partitions := range claims {
		if _, waits := r.levels[topic]; waits || topic == r.layout.origin {
			own[topic] = partitions
		}
	}
	return own
}

// heed reads what the last owner of the partition has noted. The source reads from from.
func (s *source) heed(from int64) {
	r := s.r
	f, err := r.notes.take(r.client.admin, r.layout.group, s.topic, s.partition)
	for try := 0; err != nil && try < heedTries && s.sess.Context().Err() == nil; try++ {
		// Just after a crash the group's coordinator may be on its way.
		pause := time.NewTimer(noteAgain << try)
		select {
		case <-pause.C:
			f, err = r.notes.take(r.client.admin, r.layout.group, s.topic, s.partition)
		case <-s.sess.Context().Done():
			pause.Stop()
		}
	}
	if err != nil { // nothing is known then
		f = foundNote{offset: from}
	}
	if lost := from - f.offset; s.level != nil && f.offset >= 0 && lost > 0 {
		r.sub.Emit(redeliver.MessagesLost{
			Origin: r.layout.origin, Group: r.layout.group, Where: fmt.Sprintf("%s/%d", s.topic, s.partition), Count: lost,
			Detail: fmt.Sprintf("the log begins at offset %d, and the group had settled only what lies below %d: somebody, or a retention limit, deleted waiting messages. See the topic's retention.ms and retention.bytes", from, f.offset),
		})
	}
	s.before = r.settledBefore(s.topic, f, from)
	switch n := &f.note; {
	case f.offset != from && n.known(): // the log was cut, or somebody moved the offset: of these records nothing is known
		f.note = note{}
	case (n.base > 0 || len(n.settled) > 0) && n.base != f.offset:
		// Somebody has copied it to where other records stand at its offsets.
		f.note = note{owner: n.owner, state: stateRun, alone: -1, window: make(map[int64]bool), suspects: make(map[int64]int)}
	}
	s.committed, s.dirty = from, from != f.offset // a level without an offset, too: else nobody notices what is deleted there
	s.care = newCaution(s, from, f.note)
	if n := &s.care.note; f.note.known() && f.note.state != stateLeft && (n.end > 0 || len(n.suspects) > 0) {
		r.tell(redeliver.ChangeRunsSuspects, fmt.Sprintf("%s/%d: its last owner has died or was cut off; up to offset %d little begins at once, and %d messages run alone",
			s.topic, s.partition, max(n.end, from), len(n.suspects)), nil)
	}
}

// settledBefore is what is settled above the offset from at which a partition is read, as f says. A note that was copied to
// another offset, or is of another life of the topic, says nothing of its records.
func (r *reader) settledBefore(topic string, f foundNote, from int64) []offsetRun {
	if f.offset != from || f.note.base != f.offset || r.lives.another(topic, f.note) {
		return nil
	}
	return f.note.settled
}

// commit is one offset that is to be committed.
type commit struct {
	topic     string
	partition int32
	offset    int64
	text      string // its metadata
}

// commit commits offsets in one request, and returns the answer to each. The request
// is not one of sarama's own, which cannot say whether it was taken, and waits behind
// the fetches of the group's connection.
func (a admin) commit(group string, sess sarama.ConsumerGroupSession, all []commit) []error {
	errs := make([]error, len(all))
	req := &sarama.OffsetCommitRequest{
		ConsumerGroup: group, ConsumerID: sess.MemberID(), ConsumerGroupGeneration: sess.GenerationID(),
		RetentionTime: -1, Version: commitVersion(a.client.Config().Version),
	}
	for _, c := range all {
		req.AddBlockWithLeaderEpoch(c.topic, c.partition, c.offset, -1, 0, c.text)
	}
	coordinator, err := a.client.Coordinator(group)
	var res *sarama.OffsetCommitResponse
	if err == nil {
		if res, err = coordinator.CommitOffset(req); err != nil {
			_ = coordinator.Close() // so that the next try connects anew
			_ = a.client.RefreshCoordinator(group)
		}
	}
	moved := false
	for i, c := range all {
		if err != nil {
			errs[i] = fmt.Errorf("kafka: committing %s/%d: %w", c.topic, c.partition, err)
			continue
		}
		code, ok := res.Errors[c.topic][c.partition]
		if !ok {
			code = sarama.ErrUnknown
		}
		if code != sarama.ErrNoError {
			errs[i] = code
		}
		moved = moved || code == sarama.ErrNotCoordinatorForConsumer || code == sarama.ErrConsumerCoordinatorNotAvailable
	}
	if moved {
		_ = a.client.RefreshCoordinator(group)
	}
	return errs
}

// refusesNote reports whether a commit is not taken whenever it is tried, as it is.
func refusesNote(err error) bool {
	return errors.Is(err, sarama.ErrOffsetMetadataTooLarge) || errors.Is(err, sarama.ErrGroupAuthorizationFailed) || errors.Is(err, sarama.ErrTopicAuthorizationFailed)
}

// thrownOut reports whether a commit was refused because the group has gone on without the
// session that made it.
func thrownOut(err error) bool {
	return errors.Is(err, sarama.ErrIllegalGeneration) || errors.Is(err, sarama.ErrUnknownMemberId) || errors.Is(err, sarama.ErrFencedInstancedId)
}

// commitVersion is that of a commit that needs neither a static member's name nor a
// leader's epoch.
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
