package reader

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
)

// repeatInterval is the time after which a lasting problem is reported again.
const repeatInterval = time.Minute

// reportTimes has the time of the last report of each lasting problem.
type reportTimes struct {
	mu sync.Mutex
	at map[string]time.Time // by problem
}

// reportAtIntervals reports a problem once, and again after repeatInterval.
func (r *Reader) reportAtIntervals(what string, change redeliver.Change, detail string, err error) {
	t, now := &r.reported, time.Now()
	t.mu.Lock()
	last, known := t.at[what]
	due := !known || now.Sub(last) >= repeatInterval
	if due {
		if t.at == nil {
			t.at = make(map[string]time.Time)
		}
		t.at[what] = now
	}
	t.mu.Unlock()
	if due {
		r.Sub.EmitChange(change, detail, err)
	}
}

// forget makes the next report of a problem immediate.
func (t *reportTimes) forget(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, what)
}

// reportDisconnected reports that the group is lost, and repeats that at intervals. reportJoined reports that it is
// back.
func (r *Reader) reportDisconnected(err error) {
	r.reportAtIntervals("disconnected", redeliver.ChangeDisconnected, "joining again with backoff", err)
}

func (r *Reader) reportJoined(detail string) {
	r.reported.forget("disconnected")
	r.Sub.EmitChange(redeliver.ChangeAssigned, detail, nil)
}

// handleGroupError reports an error that the group returns outside of Consume, if it is not temporary.
// Connections, leaders and generations come and go.
func (r *Reader) handleGroupError(err error) {
	err = r.probeAfter(err)
	var where *sarama.ConsumerError
	isAboutPartition := errors.As(err, &where)
	switch {
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed), !isAboutPartition && cluster.IsDenied(err): // the session ends
		r.reportDisconnected(err)
	case !isAboutPartition:
	case errors.Is(err, sarama.ErrOffsetOutOfRange):
		r.reportAtIntervals(where.Topic+" "+where.Err.Error(), redeliver.ChangeNotRead,
			fmt.Sprintf("%s/%d: the records that come next were deleted; it is read from the first that is left", where.Topic, where.Partition), where.Err)
	case undecodable(err):
		// sarama reports it for every partition of the broker, and does not say which one has the batch.
		r.reportAtIntervals("a fetch cannot be decoded", redeliver.ChangeNotRead, fmt.Sprintf("%s/%d, or another partition that the same broker leads, has "+
			"a batch of records that the client cannot decode, and none of them is read; trying again. Find the batch in the partition whose lag "+
			"grows from its committed offset, and move the group past it or delete it (kafka-delete-records); for a batch that is too large "+
			"sarama.MaxDecompressedBatchSize may be raised", where.Topic, where.Partition), where.Err)
	}
}

// undecodable reports whether a fetch failed because of the contents of the log.
func undecodable(err error) bool {
	_, packet := errors.AsType[sarama.PacketDecodingError](err)
	return packet || errors.Is(err, sarama.ErrDecompressedBatchTooLarge) || errors.Is(err, sarama.ErrInsufficientData)
}

// reportUnread reports a partition that this member owns and cannot read. The session continues with the others, so
// nothing else shows that.
func (r *Reader) reportUnread(topic string, partition int32, what string, err error) {
	r.reportAtIntervals(topic+" "+err.Error(), redeliver.ChangeNotRead, fmt.Sprintf("%s/%d: its messages wait; trying again%s", topic, partition, what), err)
}

// maxCuts is the number of sessions in a row that may cut attempts without a report.
const maxCuts = 3

// countCuts reports, at the end of a session, that the last rebalances have all cut attempts. Such attempts do not count,
// so their messages may begin again without end.
func (r *Reader) countCuts(rebalance bool) {
	all := r.Sub.Abandoned()
	n := all - r.abandoned
	r.abandoned = all
	if !rebalance {
		return
	}
	if r.cuts++; n == 0 {
		r.cuts = 0
	}
	if r.cuts >= maxCuts {
		r.reportAtIntervals("cuts", redeliver.ChangeAttemptsCut, fmt.Sprintf("each of the last %d rebalances ended attempts, the last one %d, that took longer than a rebalance may wait, %s. They do not count and begin again. "+
			"%s. InstanceID avoids the rebalance of a restart", r.cuts, n, r.RebalanceDrain, r.CutAdvice), errCut)
	}
}

var errCut = errors.New("kafka: handlers take longer than the group waits for them at a rebalance")
