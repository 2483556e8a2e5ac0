package deadletter

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// ReadOwnHeaders sets the State, the Findings and the Mismatch of a dead letter from the headers that redeliver wrote. Adapters call
// ReadHeaders of package driver.
func ReadOwnHeaders(m *Message, info Info, ours []driver.Header) {
	group := ""
	for _, h := range ours {
		switch {
		case h.Name == redeliver.HeaderState:
			m.Mismatch = "it is a copy of a message that waits, not a dead letter"
		case h.Name == redeliver.HeaderGroup && group == "":
			group = h.Value
		}
	}
	group = cmp.Or(group, info.Group)
	// Parse with the group that the headers name, so that a message of another group can be shown, too.
	m.State, m.Findings = driver.ParseHeaders(group, ours)
	if t := m.State.Truncated; t != "" {
		m.Mismatch = fmt.Sprintf("its body was left out because %s refused it (%s); look for the original at %s", info.DLQ, t, originalOf(m))
	}
	m.CheckSubscription(info, m.State.Group, m.State.Origin)
	m.State.Group = cmp.Or(m.State.Group, info.Group)
	m.State.Origin = cmp.Or(m.State.Origin, info.Origin)
}

// originalOf returns the place of the message in its origin.
func originalOf(m *Message) string {
	if src := m.State.Source; src.Known {
		return fmt.Sprintf("%s/%d/%d", m.State.Origin, src.Partition, src.Offset)
	}
	return m.State.Origin
}

// isOurs reports whether a header belongs to redeliver.
func isOurs(h Header) bool { return strings.HasPrefix(h.Name, redeliver.HeaderPrefix) }

// CheckSubscription sets m.Mismatch if the headers of a message name another group or origin than the DLQ's. It then also sets that
// name in m.State. An empty name is ignored. A name that was cut to fit into a header matches the whole name.
func (m *Message) CheckSubscription(info Info, group, origin string) {
	const maxInHeader = 512 // the maximum length in a header
	switch {
	case group != "" && group != info.Group && group != limits.Cut(info.Group, maxInHeader):
		m.State.Group = group
		m.Mismatch = fmt.Sprintf("its headers name group %q, and %s is the DLQ of group %q", group, info.DLQ, info.Group)
	case origin != "" && origin != info.Origin && origin != limits.Cut(info.Origin, maxInHeader):
		m.State.Origin = origin
		m.Mismatch = fmt.Sprintf("its headers name origin %q, and %s is the DLQ of origin %q", origin, info.DLQ, info.Origin)
	}
}
