package record

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/deadletter"
)

// Names keeps the names of users' headers, so that messages share them. A topic has few. The zero value is ready to
// use.
type Names map[string]string

// Bounds of the names that are kept.
const (
	maxKeptNames = 256
	maxKeptName  = 128 // bytes
)

// Append appends headers. The values still alias the record.
func (n *Names) Append(to []deadletter.Header, users []*sarama.RecordHeader) []deadletter.Header {
	for _, h := range users {
		to = append(to, deadletter.Header{Name: n.of(h.Key), Value: h.Value})
	}
	return to
}

func (n *Names) of(key []byte) string {
	if name, ok := (*n)[string(key)]; ok {
		return name
	}
	name := string(key)
	if len(name) <= maxKeptName && len(*n) < maxKeptNames {
		if *n == nil {
			*n = make(Names)
		}
		(*n)[name] = name
	}
	return name
}

// NameBytes is Names for writing. The zero value is ready to use.
type NameBytes map[string][]byte

// Of returns a name as bytes, which must not be changed.
func (n *NameBytes) Of(name string) []byte {
	if b, ok := (*n)[name]; ok {
		return b
	}
	b := []byte(name)
	if len(name) <= maxKeptName && len(*n) < maxKeptNames {
		if *n == nil {
			*n = make(NameBytes)
		}
		(*n)[name] = b
	}
	return b
}

// CopyMessage copies a message with its bytes, which would otherwise keep their whole page in memory.
func CopyMessage(from *deadletter.Message) *deadletter.Message {
	m := new(deadletter.Message)
	*m = *from
	size := len(m.Key) + len(m.Body)
	for _, headers := range [...][]deadletter.Header{m.Headers, m.Foreign} {
		for i := range headers {
			size += len(headers[i].Value)
		}
	}
	room := make(arena, 0, size)
	m.Key, m.Body = room.copyBytes(m.Key), room.copyBytes(m.Body)
	m.Headers, m.Foreign = copyHeaders(&room, m.Headers), copyHeaders(&room, m.Foreign)
	return m
}

// copyHeaders copies headers into room. It returns nil for nil.
func copyHeaders(room *arena, from []deadletter.Header) []deadletter.Header {
	if from == nil {
		return nil
	}
	to := make([]deadletter.Header, len(from))
	for i, h := range from {
		to[i] = deadletter.Header{Name: h.Name, Value: room.copyBytes(h.Value)}
	}
	return to
}

// Position returns the position of a record in a topic, "<partition>/<offset>".
func Position(partition int32, offset int64) deadletter.Position {
	var room [32]byte
	b := strconv.AppendInt(room[:0], int64(partition), 10)
	b = append(b, '/')
	return deadletter.Position(strconv.AppendInt(b, offset, 10))
}

// ParsePosition is the reverse of [Position].
func ParsePosition(s string) (partition int32, offset int64, err error) {
	p, o, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not a position: write partition/offset", s)
	}
	n, err := strconv.ParseInt(p, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	offset, err = strconv.ParseInt(o, 10, 64)
	if err == nil && (n < 0 || offset < 0) {
		err = fmt.Errorf("%q is not a position: partition and offset are not negative", s)
	}
	return int32(n), offset, err
}
