package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/uncounted"
)

// notes are how the lanes of a reader come by what the last owners of their
// partitions have noted, and write their own.
type notes struct {
	mu      sync.Mutex
	found   map[string]map[int32]foundNote // when the session began, until a lane takes it
	waiting []*inscription
	written chan struct{} // closed when nobody waits any more; nil before that, and after
	blind   atomic.Bool   // told that notes cannot be written
}

// foundNote is what stood beside an offset.
type foundNote struct {
	offset int64
	note   note
}

// inscription is a note that is to stand beside an offset.
type inscription struct {
	sess      sarama.ConsumerGroupSession
	topic     string
	partition int32
	offset    int64
	text      string
	stale     atomic.Bool   // nobody waits for it any more
	last      bool          // of its lane, which has ended: no later session makes it again
	answer    atomic.Int32  // the last one to it, a [sarama.KError]
	ended     chan struct{} // closed when it stands, or never will
	told      func(error)   // nil: it stands
}

// noteAgain is the pause before a commit that was not taken is tried again: the
// group rebalances, or its coordinator moves.
const noteAgain = 50 * time.Millisecond

// heedTries is how often a note that could not be read is asked for again, with twice
// the pause each time: for six seconds in all.
const heedTries = 7

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

// write has a note committed, with those that other lanes write meanwhile in the same
// request. Until it has ended nothing else may be committed for its partition.
func (n *notes) write(a admin, group string, i *inscription) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, i)
	if n.written == nil {
		n.written = make(chan struct{})
		go n.run(a, group)
	}
}

// between returns when nothing that lanes had written is under way any more, or ctx ends. In
// the next session, which may have the same generation, it would undo a later commit.
func (n *notes) between(ctx context.Context) {
	n.mu.Lock()
	written := n.written
	n.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// run writes until nobody waits.
func (n *notes) run(a admin, group string) {
	for {
		n.mu.Lock()
		all := n.waiting
		n.waiting = nil
		if len(all) == 0 {
			close(n.written)
			n.written = nil
		}
		n.mu.Unlock()
		if len(all) == 0 {
			return
		}
		if left := a.inscribe(group, all); len(left) > 0 {
			n.mu.Lock()
			n.waiting = append(n.waiting, left...)
			n.mu.Unlock()
			<-time.After(noteAgain)
		}
	}
}

// inscribe commits notes, and returns those that are to be tried again. The request
// is not one of sarama's own, which cannot say whether it was taken, and waits behind
// the fetches of the group's connection.
func (a admin) inscribe(group string, all []*inscription) (left []*inscription) {
	var sess sarama.ConsumerGroupSession
	req := &sarama.OffsetCommitRequest{ConsumerGroup: group, RetentionTime: -1, Version: commitVersion(a.client.Config().Version)}
	for _, i := range all {
		if i.stale.Load() {
			close(i.ended)
			continue
		}
		sess = i.sess
		req.AddBlockWithLeaderEpoch(i.topic, i.partition, i.offset, -1, 0, i.text)
		left = append(left, i)
	}
	if sess == nil {
		return nil
	}
	req.ConsumerID, req.ConsumerGroupGeneration = sess.MemberID(), sess.GenerationID()
	coordinator, err := a.client.Coordinator(group)
	if err != nil {
		return left
	}
	res, err := coordinator.CommitOffset(req)
	if err != nil {
		_ = coordinator.Close() // so that the next try connects anew
		_ = a.client.RefreshCoordinator(group)
		return left
	}
	all, left = left, nil
	moved := false
	for _, i := range all {
		code, ok := res.Errors[i.topic][i.partition]
		if !ok {
			code = sarama.ErrUnknown
		}
		i.answer.Store(int32(code))
		switch {
		case errors.Is(code, sarama.ErrNoError):
			i.told(nil)
			close(i.ended)
		case errors.Is(code, sarama.ErrOffsetMetadataTooLarge), errors.Is(code, sarama.ErrGroupAuthorizationFailed), errors.Is(code, sarama.ErrTopicAuthorizationFailed),
			i.last && thrownOut(code): // a cooperative lane outlives its generation, and is told of the next one late
			i.told(code)
			close(i.ended)
		default: // the group rebalances, or its coordinator moves
			moved = moved || errors.Is(code, sarama.ErrNotCoordinatorForConsumer) || errors.Is(code, sarama.ErrConsumerCoordinatorNotAvailable)
			left = append(left, i)
		}
	}
	if moved {
		_ = a.client.RefreshCoordinator(group)
	}
	return left
}

// thrownOut tells whether a commit was refused because the group has gone on without the
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

// commitBeginning commits where a level begins that has no offset: only then is it noticed when somebody deletes what
// waits there before any of it is settled. The commit is one of the notes' requests, and the next commit of the partition
// replaces it: one of the session's would undo a note that was written meanwhile.
func (l *lane) commitBeginning() {
	l.beginning = &inscription{
		sess: l.sess, topic: l.topic, partition: l.partition, offset: l.from, ended: make(chan struct{}), told: func(error) {},
	}
	l.r.notes.write(l.r.client.admin, l.r.layout.group, l.beginning)
}

// replaceBeginning is called before anything else is committed for the partition.
func (l *lane) replaceBeginning() {
	if l.beginning != nil {
		l.beginning.stale.Store(true)
	}
}

// tellBlind tells, once, that crashes are not counted for now.
func (r *reader) tellBlind(topic string, partition int32, err error) {
	if r.notes.blind.CompareAndSwap(false, true) {
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

// heed makes a lane begin as it must after what the last owner of its partition has
// noted. from is the offset from which it reads.
func (l *lane) heed(from int64) {
	r := l.r
	l.from = from
	if l.uncounted = uncounted.Is(r.values); l.uncounted {
		return
	}
	f, err := r.notes.take(r.client.admin, r.layout.group, l.topic, l.partition)
	for try := 0; err != nil && try < heedTries && l.sess.Context().Err() == nil; try++ {
		// Just after a crash the group's coordinator may be on its way.
		pause := time.NewTimer(noteAgain << try)
		select {
		case <-pause.C:
			f, err = r.notes.take(r.client.admin, r.layout.group, l.topic, l.partition)
		case <-l.sess.Context().Done():
			pause.Stop()
		}
	}
	if err != nil { // nothing is known then
		f = foundNote{offset: from}
	}
	if lost := from - f.offset; l.waits != nil && f.offset >= 0 && lost > 0 {
		r.sub.Tell(redeliver.MessagesLost{
			Origin: r.layout.origin, Group: r.layout.group, Where: fmt.Sprintf("%s/%d", l.topic, l.partition), Count: lost,
			Detail: fmt.Sprintf("the log begins at offset %d, and the group had settled only what lies below %d: somebody, or a retention, deleted what waited there. See the topic's retention.ms and retention.bytes", from, f.offset),
		})
	}
	if f.offset != from && f.note.known() { // the log was cut, or somebody moved the offset: of these records nothing is known
		f.note = note{}
	}
	if f.note.base > 0 && f.note.base != f.offset {
		// Somebody has copied it to where other records stand at its offsets.
		f.note = note{owner: f.note.owner, state: stateRun, alone: -1, window: make(map[int64]bool), suspects: make(map[int64]int)}
	}
	l.care = newCaution(l, from, f.note)
	if l.waits != nil && f.offset < 0 && err == nil {
		l.commitBeginning()
	}
	if n := &l.care.note; f.note.known() && f.note.state != stateLeft && (n.end > 0 || len(n.suspects) > 0) {
		r.tell(redeliver.ChangeRunsSuspects, fmt.Sprintf("%s/%d: its last owner has died or was cut off; up to offset %d little begins at once, and %d messages run alone",
			l.topic, l.partition, max(n.end, from), len(n.suspects)), nil)
	}
}
