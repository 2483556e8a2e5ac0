package engine

import (
	"strings"

	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// GivenID returns the id of a message to which its producer gave one, shortened by [limits.ShortID]. An id that looks like one
// that redeliver derives, topic/partition/offset or derived:..., gets the prefix "given:". Otherwise a producer could use the id
// of another message, and a handler that is idempotent by ids would skip that message.
func GivenID(id string) string {
	if strings.HasPrefix(id, wirename.DerivedID) || isPlace(id) {
		id = "given:" + id
	}
	return limits.ShortID(id)
}

// isPlace reports whether id has the form topic/partition/offset.
func isPlace(id string) bool {
	for range 2 { // the offset, then the partition
		rest, ok := strings.CutSuffix(strings.TrimRight(id, "0123456789"), "/")
		if !ok || len(rest)+1 == len(id) {
			return false
		}
		id = rest
	}
	return id != ""
}
