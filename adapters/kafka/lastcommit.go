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

var errGone = errors.New("kafka: the group has gone on without this member")

// lastCommit has the end of a lane stand in the group's offsets, and tells what runs
// again where it does not. Sarama commits what is marked when the session ends, and says
// to nobody whether that was taken: so the lane commits it before, too, with those that
// end with it in one request. The handlers of what is above the offset that stands have
// returned, and the partition's next owner knows nothing of it.
func (l *lane) lastCommit() {
	mark := max(l.track.mark, l.from)
	above := l.track.above()
	err := l.commitLast(mark)
	stands, known := mark, 0
	if err != nil {
		stands, known = l.standing(mark, err)
	}
	n := mark - stands + int64(above-known)
	switch {
	case l.acc != nil && err == nil, n <= 0: // an account says what is settled above
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
	switch {
	case l.acc != nil && l.acc.gone.Load():
		return errGone
	case l.acc != nil && l.acc.moved(): // it was flushed
		return late
	case l.acc != nil, mark == l.from, l.care == nil && l.note == "": // who notes nothing leaves it to sarama, see depart
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
// is known when err is why the last commit does not stand, and how many it knows to be
// settled above that.
func (l *lane) standing(mark int64, err error) (offset int64, above int) {
	var code sarama.KError
	if l.acc == nil && !errors.As(err, &code) {
		return l.from, 0 // nobody answers
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWait)
	defer cancel()
	f, err := until(ctx, aside, func() (foundNote, error) { return l.r.client.admin.noted(l.r.layout.group, l.topic, l.partition) }, nil)
	ours := f.note.owner == l.r.owner || !f.note.known() && l.note == "" // notes are not written
	if err != nil || !ours {
		return l.from, 0 // the next one has committed already, from wherever it began
	}
	return min(max(f.offset, l.from), mark), len(f.note.settled)
}
