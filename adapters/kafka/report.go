package kafka

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// repeatEvery is after how long it is told again that something is still wrong.
const repeatInterval = time.Minute

// told is when what is still wrong was told last.
type reportTimes struct {
	mu sync.Mutex
	at map[string]time.Time // by what is wrong
}

// tellAgain tells what is wrong, once and again after a while.
func (r *reader) reportOften(what string, change redeliver.Change, detail string, err error) {
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
		r.report(change, detail, err)
	}
}

// forget has what is wrong told at once when it comes again.
func (t *reportTimes) forget(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, what)
}

// heard takes what the group says beside its sessions. What ends a session, Consume
// says; connections, leaders and generations come and go, and are tried again.
func (r *reader) handleGroupError(err error) {
	var where *sarama.ConsumerError
	if !errors.As(err, &where) {
		return
	}
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		r.reportUnread(where.Topic, where.Partition, "; grant Read", where.Err)
	case errors.Is(err, sarama.ErrOffsetOutOfRange):
		r.reportOften(where.Topic+" "+where.Err.Error(), redeliver.ChangeNotRead,
			fmt.Sprintf("%s/%d: the records that come next were deleted; it is read from the first that is left", where.Topic, where.Partition), where.Err)
	case undecodable(err):
		// sarama tells every partition of the broker, and does not say whose records these are.
		r.reportOften("a fetch cannot be decoded", redeliver.ChangeNotRead, fmt.Sprintf("%s/%d, or another partition that the same broker leads, has "+
			"a batch of records that the client cannot decode, and none of them is read; trying again. Find the batch in the partition whose lag "+
			"grows from its committed offset, and move the group past it or delete it (kafka-delete-records); for a batch that is too large "+
			"sarama.MaxDecompressedBatchSize may be raised", where.Topic, where.Partition), where.Err)
	}
}

// undecodable reports whether a fetch failed because of what stands in the log.
func undecodable(err error) bool {
	_, packet := errors.AsType[sarama.PacketDecodingError](err)
	return packet || errors.Is(err, sarama.ErrDecompressedBatchTooLarge) || errors.Is(err, sarama.ErrInsufficientData)
}

// tellUnread tells of a partition that the group gives to this member and that it cannot
// read, once for a topic and an error and again after a while. The session goes on with the
// others, so nothing else says so, and what is there waits for ever.
func (r *reader) reportUnread(topic string, partition int32, what string, err error) {
	r.reportOften(topic+" "+err.Error(), redeliver.ChangeNotRead, fmt.Sprintf("%s/%d: what is there waits, trying again%s", topic, partition, what), err)
}
