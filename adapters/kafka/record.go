package kafka

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// RecordFromContext returns the Kafka record of the message whose handler got ctx. It is as it was in its origin: key,
// headers with their order, duplicates and bytes, topic, partition, offset and timestamp. It is nil for a context of
// another message. The record must not be changed.
func RecordFromContext(ctx context.Context) *sarama.ConsumerMessage {
	if d := engine.FromContext(ctx); d != nil {
		if r, ok := d.Record().(*sarama.ConsumerMessage); ok {
			return r
		}
	}
	return nil
}

var (
	attemptHeader = []byte(redeliver.HeaderAttempt)
	headerPrefix  = []byte(redeliver.HeaderPrefix)
)

// splitHeaders separates the user's headers from redeliver's block, which begins at the last attempt header.
func splitHeaders(headers []*sarama.RecordHeader) (users, ours []*sarama.RecordHeader) {
	for i, h := range slices.Backward(headers) {
		if h != nil && bytes.Equal(h.Key, attemptHeader) {
			return headers[:i:i], headers[i:]
		}
	}
	return headers, nil
}

// headerNames has redeliver's header names as bytes, because every retry needs a dozen.
var headerNames = func() map[string]headerName {
	m := make(map[string]headerName)
	for _, n := range redeliver.HeaderNames() {
		m[n] = headerName{n, []byte(n)}
	}
	return m
}()

type headerName struct {
	text  string
	bytes []byte
}

// orderedNames are the names in the order of a block. The next name of a block is usually the next one here, which
// saves a map look-up.
var orderedNames = func() (all []headerName) {
	for _, n := range redeliver.HeaderNames() {
		all = append(all, headerNames[n])
	}
	return all
}()

// nameReader finds the names of one block.
type nameReader struct{ at int }

// find returns a name of redeliver's. known is false for any other name.
func (r *nameReader) find(name []byte) (ready headerName, known bool) {
	for i := r.at; i < len(orderedNames); i++ {
		if string(name) == orderedNames[i].text {
			r.at = i + 1
			return orderedNames[i], true
		}
	}
	ready, known = headerNames[string(name)]
	return ready, known
}

// appendTexts appends redeliver's block to headers, as text.
func appendTexts(headers []redeliver.Header, ours []*sarama.RecordHeader) []redeliver.Header {
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
	var read nameReader
	for _, h := range ours {
		if h == nil {
			continue
		}
		name, known := read.find(h.Key)
		if !known {
			name.text = string(h.Key)
		}
		headers = append(headers, redeliver.Header{Name: name.text, Value: rest[:len(h.Value)]})
		rest = rest[len(h.Value):]
	}
	return headers
}

// foreignHeaders reports redeliver headers on a topic that redeliver does not write. A service copied them there, and
// they are treated as the user's.
func foreignHeaders(headers []*sarama.RecordHeader) []redeliver.Finding {
	var found []redeliver.Finding
	for _, h := range headers {
		if h != nil && bytes.HasPrefix(h.Key, headerPrefix) {
			found = engine.AppendForeignHeader(found, string(h.Key), string(h.Value), "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// fillRecord makes m the record to write to topic, and reuses the memory of m's headers. It copies key, value and
// headers byte for byte, and appends redeliver's block if st is not nil. The record gets the time of the write. A stub
// has redeliver's block only, and its key if that is short.
func fillRecord(r *sarama.ConsumerMessage, m *sarama.ProducerMessage, topic string, st *redeliver.State) {
	*m = sarama.ProducerMessage{Topic: topic, Headers: m.Headers[:0]}
	if st != nil && st.Truncated != "" {
		if r.Key != nil && len(r.Key) <= maxStubKey {
			m.Key = sarama.ByteEncoder(r.Key)
		}
		appendState(m, st)
		return
	}
	if r.Key != nil {
		m.Key = sarama.ByteEncoder(r.Key)
	}
	if r.Value != nil {
		m.Value = sarama.ByteEncoder(r.Value)
	}
	m.Headers = slices.Grow(m.Headers, len(r.Headers)+len(headerNames))
	for _, h := range r.Headers {
		if h != nil {
			m.Headers = append(m.Headers, *h)
		}
	}
	if st != nil {
		if st.DeadLetter != nil { // the state with which it was in the DLQ
			appendState(m, st.DeadLetter)
		}
		appendState(m, st)
	}
}

// maxStubKey is the longest key of a stub, in bytes.
const maxStubKey = 4096

// appendState appends redeliver's block to a record's headers.
func appendState(m *sarama.ProducerMessage, st *redeliver.State) {
	var ready nameReader
	for name, value := range st.Headers() {
		n, _ := ready.find([]byte(name))
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: n.bytes, Value: value})
	}
}

// byteArena holds copies of what a record points to. The bytes of a fetched record alias the whole response, which has
// a megabyte or more and would live as long as the record.
type byteArena []byte

// newByteArena makes room for a key, a value, and headers with their names.
func newByteArena(key, value []byte, headers []*sarama.RecordHeader) byteArena {
	size := len(key) + len(value)
	for _, h := range headers {
		if h != nil {
			size += len(h.Key) + len(h.Value)
		}
	}
	return make(byteArena, 0, size)
}

// copyBytes copies b. It returns nil for nil.
func (c *byteArena) copyBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	n := len(*c)
	*c = append(*c, b...)
	return (*c)[n:len(*c):len(*c)]
}

// detachRecord copies what a record points to.
func detachRecord(m *sarama.ConsumerMessage) {
	room := newByteArena(m.Key, m.Value, m.Headers)
	m.Key, m.Value = room.copyBytes(m.Key), room.copyBytes(m.Value)
	structs := make([]sarama.RecordHeader, len(m.Headers))
	pointers := make([]*sarama.RecordHeader, len(m.Headers))
	for i, h := range m.Headers {
		if h == nil {
			continue
		}
		structs[i] = sarama.RecordHeader{Key: room.copyBytes(h.Key), Value: room.copyBytes(h.Value)}
		pointers[i] = &structs[i]
	}
	m.Headers = pointers
}

// recordID returns Watermill's UUID header of a record, or else its coordinates in the origin. It hashes an id that
// does not fit into a header.
func recordID(m *sarama.ConsumerMessage) string {
	for _, h := range m.Headers {
		if h != nil && string(h.Key) == UUIDHeader && len(h.Value) > 0 {
			return engine.GivenID(string(h.Value))
		}
	}
	var b strings.Builder
	b.Grow(len(m.Topic) + 24)
	b.WriteString(m.Topic)
	b.WriteByte('/')
	b.WriteString(strconv.FormatInt(int64(m.Partition), 10))
	b.WriteByte('/')
	b.WriteString(strconv.FormatInt(m.Offset, 10))
	return b.String()
}
