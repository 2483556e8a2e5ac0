package driver

import (
	"slices"
	"strconv"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/foreign"
	"github.com/redeliver/redeliver/internal/limits"
)

// ForeignReplayHeaders returns the headers with which m is replayed to a place where redeliver's state would not be trusted: a
// retry topic of Spring's, or the origin. They are:
//
//   - the user's headers,
//   - if Spring filled the DLQ, those that locate the first failure, because Spring writes them only if they are missing,
//   - id and replays. Other programs keep these headers when they dead-letter the message again, so a canary and
//     MaxReplays recognise it.
func ForeignReplayHeaders(m *deadletter.Message, info deadletter.Info) []deadletter.Header {
	st := ReplayState(m, info)
	headers := make([]deadletter.Header, 0, len(m.Headers)+8)
	headers = append(headers, m.Headers...)
	users := len(headers)
	for _, h := range m.Foreign {
		again := slices.ContainsFunc(headers[users:], func(had deadletter.Header) bool { return had.Name == h.Name })
		if m.Writer == deadletter.WriterSpring && foreign.IsSpringOriginal(h.Name) && !again { // only the first one counts
			headers = append(headers, h)
		}
	}
	return append(headers,
		deadletter.Header{Name: redeliver.HeaderID, Value: []byte(limits.ShortID(st.ID))},
		deadletter.Header{Name: redeliver.HeaderReplays, Value: strconv.AppendInt(nil, int64(min(st.Replays, limits.MaxAttempts)), 10)})
}

// readForeignReplay reads the id and replays that ForeignReplayHeaders added to a message, which another program has
// dead-lettered again. A service may have copied them from another message, so they count only if fallback returns the
// same id. Then they are moved from the user's headers to m.Foreign.
func readForeignReplay(m *deadletter.Message, fallback func() string) {
	id, replays := lastHeader(m, redeliver.HeaderID), lastHeader(m, redeliver.HeaderReplays)
	if id < 0 || replays < 0 {
		return
	}
	n, err := strconv.Atoi(string(m.Headers[replays].Value))
	if err != nil || n < 1 || n > limits.MaxAttempts {
		return
	}
	// Call fallback only here: most messages have no id to compare with.
	name := fallback()
	if limits.ShortID(string(m.Headers[id].Value)) != name {
		return
	}
	m.State.ID, m.State.Replays = name, n
	users := make([]deadletter.Header, 0, len(m.Headers)-2)
	for i, h := range m.Headers {
		if i == id || i == replays {
			m.Foreign = append(m.Foreign, h)
		} else {
			users = append(users, h)
		}
	}
	m.Headers = users
}

// lastHeader returns the index of the last user header with a name, or -1.
func lastHeader(m *deadletter.Message, name string) int {
	for i, h := range slices.Backward(m.Headers) {
		if h.Name == name {
			return i
		}
	}
	return -1
}

// ReplayState returns the state with which a dead letter goes back to its group; adapters write it. The policy begins again with
// attempt 1. The id, the place in the origin and the time of the first failure stay, and the number of replays increases by one.
func ReplayState(m *deadletter.Message, info deadletter.Info) redeliver.State {
	st := m.State
	st.ID, st.Group, st.Origin = m.ID, info.Group, info.Origin
	st.Attempts, st.Reason, st.Policy = 0, "", ""
	st.Due, st.PostponedSince, st.Expires = time.Time{}, time.Time{}, time.Time{}
	st.Replays++
	st.Replayed = time.Now().UTC().Truncate(time.Millisecond)
	return st
}
