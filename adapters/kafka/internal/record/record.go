// Package record reads and writes Kafka records as redeliver lays them out.
//
// A record on a topic of redeliver's has the user's key, value and headers as they were in its origin, byte for byte.
// Its state follows: a block of redeliver's own text headers, which begins at the last attempt header. A reader takes
// the block off again with [SplitHeaders], so a handler never sees it. A record that was copied from a DLQ has a second
// block before the first one: the state that it had there.
//
// The bytes of a fetched record alias the response of the broker. [Detach] copies a record that is kept for longer.
package record

import (
	"bytes"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

var (
	attemptHeader = []byte(redeliver.HeaderAttempt)
	dueHeader     = []byte(redeliver.HeaderDue)
	stateHeader   = []byte(redeliver.HeaderState)
	headerPrefix  = []byte(redeliver.HeaderPrefix)
)

// SplitHeaders separates the user's headers from redeliver's block, which begins at the last attempt header.
func SplitHeaders(headers []*sarama.RecordHeader) (users, ours []*sarama.RecordHeader) {
	for i, h := range slices.Backward(headers) {
		if h != nil && bytes.Equal(h.Key, attemptHeader) {
			return headers[:i:i], headers[i:]
		}
	}
	return headers, nil
}

// CutHeaders returns the last of many headers, without their array. Redeliver's are among them.
func CutHeaders(headers []*sarama.RecordHeader) []*sarama.RecordHeader {
	return slices.Clone(headers[max(0, len(headers)-limits.MaxTail):])
}

// headerNames has redeliver's header names as text and as bytes, so that no record needs copies of them.
var headerNames = func() map[string]headerName {
	m := make(map[string]headerName)
	for _, n := range driver.HeaderNames() {
		m[n] = headerName{n, []byte(n)}
	}
	return m
}()

type headerName struct {
	text  string
	bytes []byte
}

// AppendTexts appends redeliver's block to headers, as text.
func AppendTexts(headers []driver.Header, ours []*sarama.RecordHeader) []driver.Header {
	size := 0
	for _, h := range ours {
		if h != nil {
			size += len(h.Value)
		}
	}
	var values strings.Builder // one allocation for all values
	values.Grow(size)
	for _, h := range ours {
		if h != nil {
			values.Write(h.Value)
		}
	}
	rest := values.String()
	for _, h := range ours {
		if h == nil {
			continue
		}
		name, known := headerNames[string(h.Key)]
		if !known {
			name.text = string(h.Key)
		}
		headers = append(headers, driver.Header{Name: name.text, Value: rest[:len(h.Value)]})
		rest = rest[len(h.Value):]
	}
	return headers
}

// ForeignHeaders reports redeliver headers on a topic that redeliver does not write. A service copied them there, and
// they are treated as the user's.
func ForeignHeaders(headers []*sarama.RecordHeader) []redeliver.Finding {
	var found []redeliver.Finding
	for _, h := range headers {
		if h != nil && bytes.HasPrefix(h.Key, headerPrefix) {
			found = engine.AppendForeignHeader(found, string(h.Key), string(h.Value), "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// Outgoing is a record to write, with the memory of its headers, which the next record reuses.
type Outgoing struct {
	Message sarama.ProducerMessage
	values  []byte // of the message's headers
}

// Reset empties the record, and keeps the memory for headers.
func (o *Outgoing) Reset() {
	clear(o.Message.Headers)
	o.Message = sarama.ProducerMessage{Headers: o.Message.Headers[:0]}
}

// Fill makes o a copy of r for topic: key, value and headers byte for byte, and redeliver's block if st is not nil. The
// record gets the time of the write. If st is truncated, o is a stub: redeliver's block only, and the key if that is
// short.
func (o *Outgoing) Fill(r *sarama.ConsumerMessage, topic string, st *redeliver.State, waits bool) {
	m := &o.Message
	*m = sarama.ProducerMessage{Topic: topic, Headers: m.Headers[:0]}
	isStub := st != nil && st.Truncated != ""
	if r.Key != nil && (!isStub || len(r.Key) <= maxStubKey) {
		m.Key = sarama.ByteEncoder(r.Key)
	}
	if r.Value != nil && !isStub {
		m.Value = sarama.ByteEncoder(r.Value)
	}
	if !isStub {
		for _, h := range r.Headers {
			if h != nil {
				m.Headers = append(m.Headers, *h)
			}
		}
	}
	if st == nil {
		return
	}
	if st.DeadLetter != nil && !isStub { // the state with which it was in the DLQ
		AppendState(m, st.DeadLetter)
	}
	if waits {
		o.values = appendWaiting(m, st, o.values[:0])
	} else {
		AppendState(m, st)
	}
}

// maxStubKey is the longest key of a stub, in bytes.
const maxStubKey = 4096

// AppendState appends redeliver's block to the headers of a record.
func AppendState(m *sarama.ProducerMessage, st *redeliver.State) {
	for name, value := range driver.StateHeaders(st) {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: headerNames[name].bytes, Value: value})
	}
}

// appendWaiting appends redeliver's block to the headers of a record that waits. The block's values are in the
// returned buffer.
func appendWaiting(m *sarama.ProducerMessage, st *redeliver.State, buf []byte) []byte {
	attempt, due, state, buf := driver.AppendWaiting(st, buf)
	m.Headers = append(m.Headers, sarama.RecordHeader{Key: attemptHeader, Value: attempt})
	if len(due) > 0 {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: dueHeader, Value: due})
	}
	m.Headers = append(m.Headers, sarama.RecordHeader{Key: stateHeader, Value: state})
	return buf
}

// AppendHeaders appends headers behind those of a record.
func AppendHeaders(m *sarama.ProducerMessage, extra []deadletter.Header) {
	for _, h := range extra {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
	}
}

// arena holds copies of a record's bytes. The originals alias the whole response, which has a megabyte or more and
// would live as long as the record.
type arena []byte

// newArena makes room for a key, a value, and headers with their names.
func newArena(key, value []byte, headers []*sarama.RecordHeader) arena {
	size := len(key) + len(value)
	for _, h := range headers {
		if h != nil {
			size += len(h.Key) + len(h.Value)
		}
	}
	return make(arena, 0, size)
}

// copyBytes copies b. It returns nil for nil.
func (a *arena) copyBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	n := len(*a)
	*a = append(*a, b...)
	return (*a)[n:len(*a):len(*a)]
}

// Detach replaces the bytes of a record by copies. The headers belong to the record and are changed in place.
func Detach(m *sarama.ConsumerMessage) {
	room := newArena(m.Key, m.Value, m.Headers)
	m.Key, m.Value = room.copyBytes(m.Key), room.copyBytes(m.Value)
	for _, h := range m.Headers {
		if h != nil {
			h.Key, h.Value = room.copyBytes(h.Key), room.copyBytes(h.Value)
		}
	}
}

// ID returns Watermill's UUID header of a record, or else its place and timestamp, see [engine.PlaceID]. It hashes an id that
// does not fit into a header.
func ID(m *sarama.ConsumerMessage) string {
	for _, h := range m.Headers {
		if h != nil && string(h.Key) == wirename.WatermillUUID && len(h.Value) > 0 {
			return engine.GivenID(string(h.Value))
		}
	}
	return engine.PlaceID(m.Topic, m.Partition, m.Offset, m.Timestamp)
}
