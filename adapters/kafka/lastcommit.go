package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// changeRunAgain is told of a partition of which messages run again that are settled.
const changeRunAgain = "settled messages run again"

// leaveWait is how long a lane that ends waits for its last commit.
const leaveWait = 3 * time.Second

// lastCommit has the end of a lane stand in the group's offsets, and tells what runs
// again where it does not. Sarama commits what is marked when the session ends, and says
// to nobody whether that was taken: so the lane commits it before, too, with those that
// end with it in one request. The handlers of what is above the offset that stands have
// returned, and the partition's next owner knows nothing of it.
func (l *lane) lastCommit() {
	mark := max(l.track.mark, l.from)
	err := l.commitLast(mark)
	stands := mark
	if err != nil {
		stands = l.standing(mark, err)
	}
	n := mark - stands + int64(l.track.above())
	switch {
	case n <= 0:
	case err != nil:
		l.r.tell(changeRunAgain, fmt.Sprintf("%s/%d: up to %d of them, because the last commit, of offset %d, was not taken. "+
			"If that is so at every rebalance, look whether members have CPU enough for their heartbeats, and DrainTimeout is well below Sarama.Consumer.Group.Rebalance.Timeout",
			l.topic, l.partition, n, mark), err)
	default:
		l.r.tell(changeRunAgain, fmt.Sprintf("%s/%d: up to %d of them, because offset %d below them is not settled. "+
			"If its handler needs longer than DrainTimeout, raise that", l.topic, l.partition, n, mark), nil)
	}
}

// commitLast returns when the last mark of a lane stands, or will not soon, and why.
func (l *lane) commitLast(mark int64) error {
	late := fmt.Errorf("kafka: the last commit of %s/%d was not taken within %s", l.topic, l.partition, leaveWait)
	if mark == l.from || l.care == nil && l.note == "" { // who notes nothing leaves it to sarama, see depart
		return nil
	}
	taken := make(chan error, 1)
	i := &inscription{sess: l.sess, topic: l.topic, partition: l.partition, offset: mark, text: l.note, last: true, ended: make(chan struct{})}
	i.told = func(err error) { taken <- err }
	l.r.notes.write(l.r.client.admin, l.r.layout.group, i)
	patience := time.NewTimer(leaveWait)
	defer patience.Stop()
	select {
	case err := <-taken:
		return err
	case <-patience.C:
		i.stale.Store(true)
		if code := sarama.KError(i.answer.Load()); code != sarama.ErrNoError {
			return fmt.Errorf("%w: %w", late, code)
		}
		return late
	}
}

// standing is the offset below which the partition's next owner runs nothing, as far as
// is known when err is why the last commit does not stand.
func (l *lane) standing(mark int64, err error) int64 {
	if _, answered := errors.AsType[sarama.KError](err); !answered {
		return l.from // nobody answers
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	f, err := until(ctx, aside, func() (foundNote, error) { return l.r.client.admin.noted(l.r.layout.group, l.topic, l.partition) }, nil)
	ours := f.note.owner == l.r.client.owner || !f.note.known() && l.note == "" // notes are not written
	if err != nil || !ours {
		return l.from // the next one has committed already, from wherever it began
	}
	return min(max(f.offset, l.from), mark)
}
