package deadletter

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/foreign"
)

// Read fills in what a dead letter's headers say: State, ID, Filler, Findings and
// Mismatch. m has its Headers, without redeliver's own block, which is ours; nil
// where there is none. fallback is asked for an id when no header has one. A Time beyond
// the year 9999 lies, and is taken away.
//
// A block is redeliver's word for this queue's group and origin only. One of another group or origin does not
// belong here, it is shown, and refused by a replay.
func Read(m *Message, info Info, ours []redeliver.Header, fallback func() string) {
	if y := m.Time.UTC().Year(); y < 0 || y > 9999 { // of some, milliseconds do not fit into 64 bits
		m.Time = time.Time{} // JSON has no form for it
	}
	if len(ours) > 0 {
		m.Filler = FilledByRedeliver
		readOwn(m, info, ours)
	} else {
		foreign.Read(m, info)
		takeReturn(m, fallback)
		for _, h := range m.Headers {
			if isOurs(h) {
				m.Findings = redeliver.AppendFinding(m.Findings, redeliver.Finding{
					Header: h.Name, Value: string(h.Value), Problem: "was not written by redeliver for this DLQ; it is not believed",
				})
			}
		}
	}
	m.ID = cmp.Or(m.ID, m.State.ID)
	if m.ID == "" {
		m.ID = fallback()
	}
	m.State.ID = m.ID
}

// isOurs reports whether a header has a name of redeliver's.
func isOurs(h Header) bool { return strings.HasPrefix(h.Name, redeliver.HeaderPrefix) }

func readOwn(m *Message, info Info, ours []redeliver.Header) {
	group := info.Group
	for _, h := range ours {
		if h.Name == redeliver.HeaderGroup && h.Value != "" {
			group = h.Value
			break
		}
	}
	// Read as whatever group it names, to show what it says; believed is none of
	// it when that is another.
	m.State, m.Findings = redeliver.ParseHeaders(group, ours)
	if t := m.State.Truncated; t != "" {
		m.Mismatch = fmt.Sprintf("its body was left out because %s refused it (%s); look for the original at %s", info.DLQ, t, originalOf(m))
	}
	foreign.Belongs(m, info, m.State.Group, m.State.Origin)
	m.State.Group = cmp.Or(m.State.Group, info.Group)
	m.State.Origin = cmp.Or(m.State.Origin, info.Origin)
}

// original says where a message was first.
func originalOf(m *Message) string {
	if src := m.State.Source; src.Known {
		return fmt.Sprintf("%s/%d/%d", m.State.Origin, src.Partition, src.Offset)
	}
	return m.State.Origin
}
