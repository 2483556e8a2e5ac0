package deadletter

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
)

// settlingSet is the set of messages that a task has counted and that may still be in the DLQ: a runner has recorded
// that their copies are confirmed, and may have died before it removed them. The next runner sends them again, but does
// not count them again.
type settlingSet map[uint64]bool

// settlingName returns the name of a message in a settlingSet: a hash of its position and its number of replays. A
// message that comes back to the same position has another name.
func settlingName(m *Message) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.Position))
	_, _ = h.Write(strconv.AppendInt([]byte{'/'}, int64(m.State.Replays), 10))
	return h.Sum64()
}

func settlingOf(names []byte) settlingSet {
	u := make(settlingSet, len(names)/8)
	for ; len(names) >= 8; names = names[8:] {
		u[binary.BigEndian.Uint64(names)] = true
	}
	return u
}

// bytes returns the names in u and those of done that leave the DLQ, for Task.Settling.
func (u settlingSet) bytes(done []Settlement) (names []byte) {
	for _, s := range done {
		if name := settlingName(s.Message); s.Outcome.LeavesDLQ() && !u[name] {
			names = binary.BigEndian.AppendUint64(names, name)
		}
	}
	for name := range u {
		names = binary.BigEndian.AppendUint64(names, name)
	}
	return names
}
