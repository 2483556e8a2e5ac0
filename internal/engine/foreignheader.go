package engine

import (
	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// AppendForeignHeader appends a finding about a header of a first delivery that has redeliver's prefix and is ignored; usually a
// service copied it. problem says why it is ignored. redeliver.HeaderExpires with a valid time is no finding.
func AppendForeignHeader(found []redeliver.Finding, name, value, problem string) []redeliver.Finding {
	if name == redeliver.HeaderExpires {
		if _, ok := limits.ParseTime(value); ok {
			return found
		}
		problem = "is no RFC 3339 time; the message does not expire by it"
	}
	return redeliver.AppendFinding(found, redeliver.Finding{Header: name, Value: value, Problem: problem})
}
