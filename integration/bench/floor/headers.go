package floor

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// A copy has as many headers, of the same size, as redeliver writes: on a level the attempts, the due time and one compact
// block, about 190 bytes; in the DLQ all of its headers, about 460 bytes.
var (
	attemptHeader = []byte("redeliver-attempt")
	dueHeader     = []byte("redeliver-due")
	stateHeader   = []byte("redeliver-state")
	ownHeaders    = [][]byte{attemptHeader, dueHeader, stateHeader}

	compactState = slices.Repeat([]byte("s"), 110)

	deadNames = []string{"group", "origin", "id", "first-failed", "last-failed", "error", "error-type", "reason", "origin-partition", "origin-offset", "origin-timestamp", "policy"}
)

// usersOf are the headers of a record that are not ours, which are last, with room for ours.
func usersOf(record *sarama.ConsumerMessage) []sarama.RecordHeader {
	headers := make([]sarama.RecordHeader, 0, len(record.Headers)+len(deadNames)+1)
	for _, h := range record.Headers {
		if !slices.ContainsFunc(ownHeaders, func(name []byte) bool { return string(name) == string(h.Key) }) {
			headers = append(headers, *h)
		}
	}
	return headers
}

// appendWaiting adds what a message has on a level.
func appendWaiting(headers []sarama.RecordHeader, attempts int, due time.Time) []sarama.RecordHeader {
	// Up to the next millisecond: no reader may take it for due before.
	milli := due.Add(time.Millisecond - time.Nanosecond).UnixMilli()
	return append(headers,
		sarama.RecordHeader{Key: attemptHeader, Value: strconv.AppendInt(nil, int64(attempts), 10)},
		sarama.RecordHeader{Key: dueHeader, Value: binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(milli))[:24]},
		sarama.RecordHeader{Key: stateHeader, Value: compactState},
	)
}

// parseWaiting reads what appendWaiting has written.
func parseWaiting(headers []*sarama.RecordHeader) (attempts int, due time.Time) {
	for _, h := range headers {
		switch string(h.Key) {
		case string(attemptHeader):
			attempts, _ = strconv.Atoi(string(h.Value)) // nobody else writes to the level
		case string(dueHeader):
			due = time.UnixMilli(int64(binary.BigEndian.Uint64(h.Value)))
		}
	}
	return attempts, due
}

// appendDead adds what a dead letter has.
func appendDead(headers []sarama.RecordHeader, e *entry, group string, cause error, now time.Time) []sarama.RecordHeader {
	failed := now.UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z")
	values := [][]byte{
		[]byte(group), []byte(e.record.Topic), e.record.Key, failed, failed, []byte(cause.Error()), []byte("*errors.errorString"), []byte("exhausted"),
		strconv.AppendInt(nil, int64(e.record.Partition), 10), strconv.AppendInt(nil, e.record.Offset, 10), failed, []byte("0123456789abcdef"),
	}
	headers = append(headers, sarama.RecordHeader{Key: attemptHeader, Value: strconv.AppendInt(nil, int64(e.attempts)+1, 10)})
	for i, name := range deadNames {
		headers = append(headers, sarama.RecordHeader{Key: []byte("redeliver-" + name), Value: values[i]})
	}
	return headers
}
