package redeliver

import (
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// HeaderPrefix begins the name of every header that redeliver writes.
const HeaderPrefix = "redeliver-"

// The headers, in the order in which they are written: redeliver's block. HeaderAttempt is always written, and always first. So on a
// broker whose headers may repeat, the block begins with the last HeaderAttempt, and all headers before it are the user's.
const (
	HeaderAttempt         = "redeliver-attempt"
	HeaderDue             = "redeliver-due"
	HeaderGroup           = "redeliver-group"
	HeaderOrigin          = "redeliver-origin"
	HeaderID              = "redeliver-id"
	HeaderFirstFailed     = "redeliver-first-failed"
	HeaderLastFailed      = "redeliver-last-failed"
	HeaderPostponed       = "redeliver-postponed"
	HeaderError           = "redeliver-error"
	HeaderErrorType       = "redeliver-error-type"
	HeaderFirstError      = "redeliver-first-error"
	HeaderReason          = "redeliver-reason"
	HeaderOriginPartition = "redeliver-origin-partition"
	HeaderOriginOffset    = "redeliver-origin-offset"
	HeaderOriginTimestamp = "redeliver-origin-timestamp"
	HeaderPolicy          = "redeliver-policy"
	HeaderReplays         = "redeliver-replays"
	HeaderReplayed        = "redeliver-replayed"
	HeaderTrace           = "redeliver-trace"
	HeaderTruncated       = "redeliver-truncated"

	// HeaderState has all fields after HeaderDue in one value, see AppendWaiting of package driver.
	HeaderState = "redeliver-state"
)

// MaxWait is the longest wait: 366 days. A message that would wait for longer goes to the DLQ, unschedulable.
const MaxWait = 366 * 24 * time.Hour

// Finding is an invalid header of a message. It is reported, and the header is ignored.
type Finding struct {
	// Header is the header's name, Value its value, both cut to 64 bytes. Both are empty in the last finding if it counts those
	// that were left out, see AppendFinding.
	Header, Value string
	// Problem describes the problem and the value that is used instead.
	Problem string

	omitted int // findings that were left out
}

func (f Finding) String() string {
	if f.Header == "" && f.Value == "" {
		return f.Problem
	}
	return fmt.Sprintf("%s %q: %s", f.Header, f.Value, f.Problem)
}

// maxFindings bounds the findings of one message, which may have a hundred thousand headers.
const maxFindings = 20

// AppendFinding appends f to the findings of one message and cuts its texts. After 20 findings it appends one more, which counts
// those that are left out.
func AppendFinding(findings []Finding, f Finding) []Finding {
	if len(findings) < maxFindings {
		f.Header, f.Value = strings.Clone(limits.Cut(f.Header, 64)), strings.Clone(limits.Cut(f.Value, 64))
		return append(findings, f)
	}
	if len(findings) == maxFindings {
		findings = append(findings, Finding{})
	}
	last := &findings[maxFindings]
	last.omitted += max(1, f.omitted)
	last.Problem = fmt.Sprintf("%d more findings are left out", last.omitted)
	return findings
}
