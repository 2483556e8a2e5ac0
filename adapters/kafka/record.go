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

// RecordFromContext returns the Kafka record behind the message whose handler
// got ctx, as it stood in its origin: its key, headers with their order,
// duplicates and bytes, topic, partition, offset and timestamp. It is nil for a
// context of another message. The record must not be changed.
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

// split parts a record's headers into the user's and redeliver's own block,
// which begins at the last attempt header.
func splitHeaders(headers []*sarama.RecordHeader) (users, ours []*sarama.RecordHeader) {
	for i, h := range slices.Backward(headers) {
		if h != nil && bytes.Equal(h.Key, attemptHeader) {
			return headers[:i:i], headers[i:]
		}
	}
	return headers, nil
}

// names are the names of redeliver's headers, ready made: every retry has a dozen.
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

// inOrder are the same as they are written: who reads or writes a block finds the next
// name behind the one before, and seldom needs the map.
var orderedNames = func() (all []headerName) {
	for _, n := range redeliver.HeaderNames() {
		all = append(all, headerNames[n])
	}
	return all
}()

// nameReader finds the ready made names of one block.
type nameReader struct{ at int }

// of is a name as it is ready made; known is false for one that is none of ours.
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
	var values strings.Builder // one string for all of them
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

// strangers reports redeliver headers on a topic that redeliver does not write:
// a service copied them onward. They are the user's headers like any others.
func foreignHeaders(headers []*sarama.RecordHeader) []redeliver.Finding {
	var found []redeliver.Finding
	for _, h := range headers {
		if h != nil && bytes.HasPrefix(h.Key, headerPrefix) {
			found = engine.AppendForeignHeader(found, string(h.Key), string(h.Value), "on a topic that redeliver does not write; it is not believed")
		}
	}
	return found
}

// produce makes m, of which only the headers' room is used again, the record to
// be written to topic: key, value and headers byte for byte, redeliver's block
// behind them where st is not nil. The timestamp is the time of the write. A stub has
// redeliver's block alone, and the key where that is short.
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
		if st.DeadLetter != nil { // as it lay in the DLQ
			appendState(m, st.DeadLetter)
		}
		appendState(m, st)
	}
}

// stubKey is the longest key that a stub has.
const maxStubKey = 4096

// appendState puts redeliver's own block behind a record's headers.
func appendState(m *sarama.ProducerMessage, st *redeliver.State) {
	var ready nameReader
	for name, value := range st.Headers() {
		n, _ := ready.find([]byte(name))
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: n.bytes, Value: value})
	}
}

// copies is room for what a record points to. The bytes of a fetched record alias the
// whole response, a megabyte and more, which would live as long as the record does.
type byteArena []byte

// newCopies makes room for a key, a value, and headers with their names.
func newByteArena(key, value []byte, headers []*sarama.RecordHeader) byteArena {
	size := len(key) + len(value)
	for _, h := range headers {
		if h != nil {
			size += len(h.Key) + len(h.Value)
		}
	}
	return make(byteArena, 0, size)
}

// take copies b; nil stays nil.
func (c *byteArena) copyBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	n := len(*c)
	*c = append(*c, b...)
	return (*c)[n:len(*c):len(*c)]
}

// detach copies what a record points to.
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

// uuidOf is the id of a record: the UUID header of Watermill, else its
// coordinates in the origin. An id that does not fit into a header is hashed.
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
