package deadletter

import (
	"slices"
	"strconv"

	"github.com/redeliver/redeliver"
)

// isReturn tells whether a header is one of the two that a replay adds where redeliver does
// not write: without id and replays neither a canary nor MaxReplays would know the
// message when it comes back, dead-lettered by somebody else, who leaves headers alone.
func isReturn(name string) bool {
	return name == redeliver.HeaderID || name == redeliver.HeaderReplays
}

// ToElsewhere returns the headers with which m goes to a way back that redeliver does not
// write, where the state of a message would be believed by nobody: a retry topic of
// Spring's, or the origin. They are the user's; where Spring filled the DLQ, those that
// say where the message first failed, which Spring writes only where they are missing;
// and id and replays, by which it is known when it comes back.
func ToElsewhere(m *Message, info Info) []Header {
	st := NewState(m, info)
	headers := make([]Header, 0, len(m.Headers)+8)
	headers = append(headers, m.Headers...)
	users := len(headers)
	for _, h := range m.Foreign {
		again := slices.ContainsFunc(headers[users:], func(had Header) bool { return had.Name == h.Name })
		if m.Filler == FilledBySpring && isSpringOriginal(h.Name) && !again { // the first says it
			headers = append(headers, h)
		}
	}
	return append(headers,
		Header{redeliver.HeaderID, []byte(redeliver.ShortID(st.ID))},
		Header{redeliver.HeaderReplays, strconv.AppendInt(nil, int64(min(st.Replays, redeliver.MaxAttempts)), 10)})
}

// readReturn reads what ToElsewhere wrote, of a message that Spring has dead-lettered
// again. A service may have copied it onward from another message: Read believes it only
// where the id is the one that belongs to the message's place in the origin.
func (m *Message) readReturn(said map[string][]byte) {
	id, ok := said[redeliver.HeaderID]
	if !ok {
		return
	}
	replays, err := strconv.Atoi(string(said[redeliver.HeaderReplays]))
	if err != nil || replays < 1 || replays > redeliver.MaxAttempts {
		return
	}
	m.State.ID, m.State.Replays = redeliver.ShortID(string(id)), replays
}
