package deadletter

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
)

// underWay are the messages that a task has counted, and that may lie in the DLQ all the same: their runner has
// recorded that they are confirmed elsewhere, and may have died before they were removed. The next runner sends
// them again and does not count them again.
type underWay map[uint64]bool

// underWayName is a hash of where a message is and of how often it was replayed: one that
// comes back to the same position is another.
func underWayName(m *Message) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.Position))
	_, _ = h.Write(strconv.AppendInt([]byte{'/'}, int64(m.State.Replays), 10))
	return h.Sum64()
}

func underWayOf(names []byte) underWay {
	u := make(underWay, len(names)/8)
	for ; len(names) >= 8; names = names[8:] {
		u[binary.BigEndian.Uint64(names)] = true
	}
	return u
}

// bytes are the names of those and of the messages that are settled now.
func (u underWay) bytes(done []Settlement) (names []byte) {
	for _, s := range done {
		if name := underWayName(s.Message); !u[name] {
			names = binary.BigEndian.AppendUint64(names, name)
		}
	}
	for name := range u {
		names = binary.BigEndian.AppendUint64(names, name)
	}
	return names
}
