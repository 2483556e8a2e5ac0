package redeliver

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver/internal/limits"
)

// HeaderPrefix begins the name of every header that redeliver writes.
const HeaderPrefix = "redeliver-"

// The headers, in the order in which they are written. HeaderAttempt is always written, and always first: on a broker whose headers
// may repeat, the last HeaderAttempt begins redeliver's block, and all headers before it are the user's.
const (
	HeaderAttempt         = "redeliver-attempt"
	HeaderGroup           = "redeliver-group"
	HeaderOrigin          = "redeliver-origin"
	HeaderID              = "redeliver-id"
	HeaderDue             = "redeliver-due"
	HeaderFirstFailed     = "redeliver-first-failed"
	HeaderLastFailed      = "redeliver-last-failed"
	HeaderPostponed       = "redeliver-postponed"
	HeaderError           = "redeliver-error"
	HeaderErrorType       = "redeliver-error-type"
	HeaderReason          = "redeliver-reason"
	HeaderOriginPartition = "redeliver-origin-partition"
	HeaderOriginOffset    = "redeliver-origin-offset"
	HeaderOriginTimestamp = "redeliver-origin-timestamp"
	HeaderPolicy          = "redeliver-policy"
	HeaderReplays         = "redeliver-replays"
	HeaderReplayed        = "redeliver-replayed"
	HeaderTrace           = "redeliver-trace"
	HeaderTruncated       = "redeliver-truncated"
)

// Bounds of headers, beside those in internal/limits.
const (
	maxErrorType = 256 // bytes of redeliver-error-type
	maxPolicy    = 64  // bytes of redeliver-policy without a schedule
	maxReason    = 32  // bytes of redeliver-reason
	maxTruncated = 128 // bytes of redeliver-truncated

	// MaxWait is the longest wait: 366 days. A message whose handler asks for a longer wait is dead-lettered,
	// unschedulable.
	MaxWait = 366 * 24 * time.Hour
)

// Header is one header as text.
type Header struct{ Name, Value string }

// Finding is an invalid header of a message. It is reported, and the header is ignored.
type Finding struct {
	// Header is the header's name, Value its value, both cut to 64 bytes. Both are empty in the finding that counts others, see
	// AppendFinding.
	Header, Value string
	// Problem describes the problem and the value that is used instead.
	Problem string

	more int // findings that were left out
}

func (f Finding) String() string {
	if f.Header == "" && f.Value == "" {
		return f.Problem
	}
	return fmt.Sprintf("%s %q: %s", f.Header, f.Value, f.Problem)
}

// maxFindings bounds the findings of one message, which may have a hundred thousand headers.
const maxFindings = 20

// AppendFinding appends f to the findings of one message and cuts its texts. Above maxFindings it only counts: the last
// finding has the number of those that are left out.
func AppendFinding(findings []Finding, f Finding) []Finding {
	if len(findings) < maxFindings {
		f.Header, f.Value = strings.Clone(limits.Cut(f.Header, 64)), strings.Clone(limits.Cut(f.Value, 64))
		return append(findings, f)
	}
	if len(findings) == maxFindings {
		findings = append(findings, Finding{})
	}
	last := &findings[maxFindings]
	last.more += max(1, f.more)
	last.Problem = fmt.Sprintf("%d more findings are left out", last.more)
	return findings
}

// Headers yields the state's headers, HeaderAttempt first. Zero fields are left out, and texts are cut to their bounds. The values
// share one buffer; the caller may keep them.
func (s *State) Headers() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		e := headerWriter{buf: make([]byte, 0, 384), yield: yield}
		e.count(HeaderAttempt, min(max(0, int64(s.Attempts)), limits.MaxAttempts))
		e.text(HeaderGroup, s.Group, limits.MaxName)
		e.text(HeaderOrigin, s.Origin, limits.MaxName)
		e.text(HeaderID, s.ID, limits.MaxName)
		e.time(HeaderDue, limits.CeilMilli(s.Due)) // never early
		e.time(HeaderFirstFailed, s.FirstFailed)
		e.time(HeaderLastFailed, s.LastFailed)
		e.time(HeaderPostponed, s.PostponedSince)
		e.text(HeaderError, s.Error, limits.MaxErrorText)
		e.text(HeaderErrorType, s.ErrorType, maxErrorType)
		e.text(HeaderReason, string(s.Reason), maxReason)
		if s.Source.Known {
			e.count(HeaderOriginPartition, int64(s.Source.Partition))
			e.count(HeaderOriginOffset, s.Source.Offset)
		}
		e.time(HeaderOriginTimestamp, s.Source.Timestamp)
		e.policy(s)
		if s.Replays > 0 {
			e.count(HeaderReplays, min(int64(s.Replays), limits.MaxAttempts))
			e.time(HeaderReplayed, s.Replayed)
		}
		if isTraceparent(s.Trace) { // a tracer may return anything
			e.text(HeaderTrace, s.Trace, len(s.Trace))
		}
		e.text(HeaderTruncated, s.Truncated, maxTruncated)
	}
}

// AppendHeaders appends the headers to dst, as text.
func (s State) AppendHeaders(dst []Header) []Header {
	for name, value := range s.Headers() {
		dst = append(dst, Header{name, string(value)})
	}
	return dst
}

// headerWriter writes values into one buffer and yields them.
type headerWriter struct {
	buf   []byte
	yield func(string, []byte) bool
	done  bool
}

func (w *headerWriter) send(name string, from int) {
	if !w.done && len(w.buf) > from {
		w.done = !w.yield(name, w.buf[from:len(w.buf):len(w.buf)])
	}
}

func (w *headerWriter) text(name, value string, maxBytes int) {
	from := len(w.buf)
	w.buf = append(w.buf, limits.Cut(value, maxBytes)...)
	w.send(name, from)
}

func (w *headerWriter) policy(s *State) {
	from := len(w.buf)
	w.buf = appendPolicy(w.buf, s)
	w.send(HeaderPolicy, from)
}

func (w *headerWriter) count(name string, n int64) {
	from := len(w.buf)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.send(name, from)
}

func (w *headerWriter) time(name string, t time.Time) {
	from := len(w.buf)
	w.buf = limits.AppendTime(w.buf, t)
	w.send(name, from)
}

// ParseHeaders reads the state of a message of group from redeliver's block of headers. It never fails: an invalid
// value is a [Finding], and the field gets a value with which the message neither goes to the DLQ early nor runs
// forever. Headers of another group are one finding, and the state is empty. Headers that are not redeliver's are
// ignored.
func ParseHeaders(group string, headers []Header) (State, []Finding) {
	p := parser{}
	for _, h := range headers {
		if h.Name == HeaderGroup && h.Value != limits.Cut(group, limits.MaxName) {
			p.find(h, "written for another group; none of the message's redeliver headers is believed")
			return State{}, p.findings
		}
	}
	for _, h := range headers {
		if strings.HasPrefix(h.Name, HeaderPrefix) && p.first(h) {
			p.read(h)
		}
	}
	p.settle(group)
	return p.state, p.findings
}

// HeaderNames returns the names of all headers that redeliver writes.
func HeaderNames() []string { return slices.Clone(fields[:]) }

// fields are the headers that ParseHeaders reads.
var fields = [...]string{
	HeaderAttempt, HeaderGroup, HeaderOrigin, HeaderID, HeaderDue, HeaderFirstFailed, HeaderLastFailed, HeaderPostponed,
	HeaderError, HeaderErrorType, HeaderReason, HeaderOriginPartition, HeaderOriginOffset, HeaderOriginTimestamp,
	HeaderPolicy, HeaderReplays, HeaderReplayed, HeaderTrace, HeaderTruncated,
}

// first reports whether h is the first header of its name, and its name is one that is read. All repetitions of a name
// are one finding.
func (p *parser) first(h Header) bool {
	for n := range fields {
		i := (p.next + n) % len(fields)
		if h.Name != fields[i] {
			continue
		}
		p.next = i + 1 // they are written in this order
		if p.seen[i]++; p.seen[i] == 2 {
			p.find(h, "is there twice; the first is taken")
		}
		return p.seen[i] == 1
	}
	return false
}

type parser struct {
	state             State
	findings          []Finding
	partition, offset int64
	hasPart, hasOff   bool
	seen              [len(fields)]int
	next              int // the index in fields behind the latest one
}

func (p *parser) find(h Header, problem string) {
	p.findings = AppendFinding(p.findings, Finding{Header: h.Name, Value: h.Value, Problem: problem})
}

func (p *parser) read(h Header) {
	s := &p.state
	switch h.Name {
	case HeaderAttempt:
		// A waiting message has had at least one attempt, and the count is written again after the next one.
		s.Attempts = int(p.count(h, limits.MaxAttempts, 1))
	case HeaderReplays:
		s.Replays = int(p.count(h, limits.MaxAttempts, 0))
	case HeaderReplayed:
		s.Replayed = p.time(h)
	case HeaderOrigin:
		s.Origin = p.text(h, limits.MaxName)
	case HeaderID:
		s.ID = p.text(h, limits.MaxName)
	case HeaderError:
		s.Error = p.text(h, limits.MaxErrorText)
	case HeaderErrorType:
		s.ErrorType = p.text(h, maxErrorType)
	case HeaderPolicy:
		s.Policy, s.Schedule = p.policy(h)
	case HeaderReason:
		s.Reason = p.reason(h)
	case HeaderTrace:
		s.Trace = p.trace(h)
	case HeaderTruncated:
		s.Truncated = p.text(h, maxTruncated)
	case HeaderDue:
		s.Due = p.time(h)
	case HeaderFirstFailed:
		s.FirstFailed = p.time(h)
	case HeaderLastFailed:
		s.LastFailed = p.time(h)
	case HeaderPostponed:
		s.PostponedSince = p.time(h)
	case HeaderOriginTimestamp:
		s.Source.Timestamp = p.time(h)
	case HeaderOriginPartition:
		p.partition, p.hasPart = p.coordinate(h, math.MaxInt32)
	case HeaderOriginOffset:
		p.offset, p.hasOff = p.coordinate(h, math.MaxInt64)
	}
}

// settle sets the fields that depend on more than one header.
func (p *parser) settle(group string) {
	s := &p.state
	if p.hasPart && p.hasOff {
		s.Source.Known = true
		s.Source.Partition, s.Source.Offset = int32(p.partition), p.offset
	}
	s.Group = group // the group in the header was compared, and may be cut
}

func (p *parser) count(h Header, maxValue, instead int64) int64 {
	n, err := strconv.ParseInt(h.Value, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		p.find(h, fmt.Sprintf("is not a whole number from 0 to %d; %d is taken", maxValue, instead))
		return instead
	}
	return n
}

// coordinate reads a partition or an offset, for which no other value can be used.
func (p *parser) coordinate(h Header, maxValue int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.Value, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		p.find(h, fmt.Sprintf("is not a whole number from 0 to %d; the place in the origin is unknown", maxValue))
		return 0, false
	}
	return n, true
}

func (p *parser) text(h Header, maxBytes int) string {
	if len(h.Value) > maxBytes || !utf8.ValidString(h.Value) {
		p.find(h, fmt.Sprintf("is longer than %d bytes or no UTF-8; it is cut", maxBytes))
		return limits.Cut(h.Value, maxBytes)
	}
	return h.Value
}

func (p *parser) time(h Header) time.Time {
	t, ok := limits.ParseTime(h.Value)
	if !ok {
		p.find(h, "is no RFC 3339 time of the years 1 to 9999; it is ignored")
	}
	return t
}

func (p *parser) reason(h Header) Reason {
	if r := Reason(h.Value); slices.Contains(allReasons[:], r) {
		return r
	}
	p.find(h, "is not a reason of redeliver's; it is ignored")
	return ""
}

func (p *parser) trace(h Header) string {
	if isTraceparent(h.Value) {
		return h.Value
	}
	p.find(h, "is not a traceparent of W3C's Trace Context, version 00; it is ignored")
	return ""
}
