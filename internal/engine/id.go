package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// PlaceID returns the id of a record that came without one: topic/partition/offset@time, with its timestamp in Unix
// milliseconds. An offset alone identifies nothing: a topic that was created again, a log that lost its end, and the copy of the
// topic in another cluster have other records at the same offsets. All readers of a record know its timestamp, and it never
// changes. The topic's id, which not all of them know, is not in the id.
//
// A record without a timestamp gets an id that begins with [wirename.DerivedID], so nothing takes two of them for one.
func PlaceID(topic string, partition int32, offset int64, at time.Time) string {
	ms := at.UnixMilli()
	var room [128]byte // most ids fit, without an allocation for b
	b := room[:0]
	if ms <= 0 {
		b = append(b, wirename.DerivedID...)
	}
	b = append(append(b, topic...), '/')
	b = append(strconv.AppendInt(b, int64(partition), 10), '/')
	b = strconv.AppendInt(b, offset, 10)
	if ms > 0 {
		b = strconv.AppendInt(append(b, '@'), ms, 10)
	}
	return limits.ShortID(string(b))
}

// GivenID returns the id of a message to which its producer gave one, shortened by [limits.ShortID]. An id that looks like one
// that redeliver derives, topic/partition/offset@time or derived:..., gets the prefix "given:". Otherwise a producer could use
// the id of another message, and a handler that is idempotent by ids would skip that message.
func GivenID(id string) string {
	if strings.HasPrefix(id, wirename.DerivedID) || isPlace(id) {
		id = "given:" + id
	}
	return limits.ShortID(id)
}

// isPlace reports whether id has the form topic/partition/offset, with or without a time.
func isPlace(id string) bool {
	const digits = "0123456789"
	if rest, ok := strings.CutSuffix(strings.TrimRight(id, digits), "@"); ok && len(rest)+1 < len(id) {
		id = rest
	}
	for range 2 { // the offset, then the partition
		rest, ok := strings.CutSuffix(strings.TrimRight(id, digits), "/")
		if !ok || len(rest)+1 == len(id) {
			return false
		}
		id = rest
	}
	return id != ""
}
