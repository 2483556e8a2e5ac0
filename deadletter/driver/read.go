package driver

import (
	"cmp"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/foreign"
	"github.com/redeliver/redeliver/internal/limits"
)

// ReadHeaders sets the fields of a dead letter that come from its headers: State, ID, Writer, Findings,
// Foreign and Mismatch. ours are the headers that redeliver added, or nil if there are none; m.Headers
// are the others. If no header has an id, ReadHeaders calls fallback for one. It removes a Time
// that cannot be when a message was written.
//
// If ours name another group or origin than info, the message does not belong to this DLQ. It gets a
// Mismatch: it is shown, and a replay refuses it.
func ReadHeaders(m *deadletter.Message, info deadletter.Info, ours []driver.Header, fallback func() string) {
	if !limits.Plausible(m.Time) { // JSON cannot represent some of them
		m.Time = time.Time{}
	}
	if len(ours) > 0 {
		m.Writer = deadletter.WriterRedeliver
		deadletter.ReadOwnHeaders(m, info, ours)
	} else {
		foreign.Read(m, info)
		readForeignReplay(m, fallback)
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

// isOurs reports whether a header belongs to redeliver.
func isOurs(h deadletter.Header) bool { return strings.HasPrefix(h.Name, redeliver.HeaderPrefix) }
