package driver

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Bounds of headers, in addition to those in internal/limits.
const (
	maxPolicy    = 64  // bytes of redeliver-policy
	maxReason    = 32  // bytes of redeliver-reason
	maxTruncated = 128 // bytes of redeliver-truncated

	maxOlderErrorText = 1024 // bytes of redeliver-error that older versions wrote
)

// Header is one header as text.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// StateHeaders yields the headers of a state, HeaderAttempt first. Zero fields are left out, and texts are cut to their bounds. The values
// share one buffer; the caller may keep them.
func StateHeaders(s *redeliver.State) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		w := headerWriter{buf: make([]byte, 0, 384)}
		w.state(s)
		from := 0
		for i, end := range w.ends {
			if end > from && !yield(fields[i], w.buf[from:end:end]) {
				return
			}
			from = max(from, end)
		}
	}
}

// AppendWaiting appends to buf the values of the headers of a waiting message, and returns them: HeaderAttempt,
// HeaderDue, which is empty if nothing is due, and HeaderState. A dozen headers would be a third of the cost of a retry
// on Kafka. Readers should use [ParseHeaders]: the form of HeaderState may change with a version.
func AppendWaiting(s *redeliver.State, buf []byte) (attempt, due, state, all []byte) {
	from := len(buf)
	w := headerWriter{buf: buf, packed: true}
	w.state(s)
	a, d, end := w.ends[0], w.ends[1], len(w.buf)
	return w.buf[from:a:a], w.buf[a:d:d], w.buf[d:end:end], w.buf
}

// AppendStateHeaders appends the headers of a state to dst, as text.
func AppendStateHeaders(s redeliver.State, dst []Header) []Header {
	for name, value := range StateHeaders(&s) {
		dst = append(dst, Header{name, string(value)})
	}
	return dst
}

// headerWriter appends the values of a state's headers to one buffer.
type headerWriter struct {
	buf  []byte
	ends [len(fields)]int // where the value of each field ends
	next int              // the index of the next field
	// packed puts a name of one byte and a length of four digits before each value after HeaderDue.
	packed bool
}

const (
	packedPrefix    = 5
	maxPackedFields = 64 // fields after these are not read
)

// state appends all fields, in the order of fields.
func (w *headerWriter) state(s *redeliver.State) {
	w.count(min(max(0, int64(s.Attempts)), limits.MaxAttempts), true)
	w.time(limits.CeilMilli(s.Due)) // never early
	w.text(s.Group, limits.MaxName)
	w.text(s.Origin, limits.MaxName)
	w.text(s.ID, limits.MaxName)
	w.time(s.FirstFailed)
	w.time(s.LastFailed)
	w.time(s.PostponedSince)
	w.text(s.Error, limits.MaxErrorText)
	w.text(s.ErrorType, limits.MaxErrorType)
	if s.FirstError != s.Error {
		w.text(s.FirstError, limits.MaxErrorText)
	} else {
		w.text("", 0)
	}
	w.text(string(s.Reason), maxReason)
	w.count(int64(s.Source.Partition), s.Source.Known)
	w.count(s.Source.Offset, s.Source.Known)
	w.time(s.Source.Timestamp)
	w.text(s.Policy, maxPolicy)
	w.count(min(int64(s.Replays), limits.MaxAttempts), s.Replays > 0)
	if s.Replays > 0 {
		w.time(s.Replayed)
	} else {
		w.time(time.Time{})
	}
	if s.TraceID() != "" { // a tracer may return anything
		w.text(s.Trace, len(s.Trace))
	} else {
		w.text("", 0)
	}
	w.text(s.Truncated, maxTruncated)
}

// put appends one field, which is left out if its value is empty.
func (w *headerWriter) put(appendValue func([]byte) []byte) {
	hasName := w.packed && w.next > 1
	from := len(w.buf)
	if hasName {
		w.buf = append(w.buf, stateNames[w.next], 0, 0, 0, 0)
	}
	value := len(w.buf)
	w.buf = appendValue(w.buf)
	switch n := len(w.buf) - value; {
	case !hasName:
	case n == 0:
		w.buf = w.buf[:from]
	default:
		for i := value - 1; i > from; i-- {
			w.buf[i] = byte('0' + n%10)
			n /= 10
		}
	}
	w.ends[w.next] = len(w.buf)
	w.next++
}

func (w *headerWriter) text(value string, maxBytes int) {
	w.put(func(buf []byte) []byte { return append(buf, limits.Cut(value, maxBytes)...) })
}

func (w *headerWriter) count(n int64, known bool) {
	w.put(func(buf []byte) []byte {
		if !known {
			return buf
		}
		return strconv.AppendInt(buf, n, 10)
	})
}

func (w *headerWriter) time(t time.Time) {
	w.put(func(buf []byte) []byte { return limits.AppendTime(buf, t) })
}

// ParseHeaders reads the state of a message of group from redeliver's block of headers. It never fails: an invalid
// value is a [redeliver.Finding], and the field gets a value with which the message neither goes to the DLQ early nor runs
// forever. If the headers are another group's, there is one finding, and the state is empty. Headers that are not redeliver's
// are ignored.
func ParseHeaders(group string, headers []Header) (redeliver.State, []redeliver.Finding) {
	p := parser{}
	name := limits.Cut(group, limits.MaxName)
	foreign := eachHeader(headers, func(h Header) (isForeign bool) {
		switch {
		case h.Name == redeliver.HeaderGroup && h.Value != name:
			return true
		case h.Name == redeliver.HeaderState:
			p.addFinding(h, "is not one of redeliver's states; the rest of it is ignored")
		case strings.HasPrefix(h.Name, redeliver.HeaderPrefix) && p.isFirst(h):
			p.read(h)
		}
		return false
	})
	if foreign != (Header{}) {
		p = parser{}
		p.addFinding(foreign, "written for another group; none of the message's redeliver headers is believed")
		return redeliver.State{}, p.findings
	}
	p.combine(group)
	return p.state, p.findings
}

// eachHeader calls f for each header, and for each field of a HeaderState, until f returns true. It returns the header for
// which f returned true. f gets a HeaderState itself only if a part of it cannot be read.
func eachHeader(headers []Header, f func(Header) bool) Header {
	for _, h := range headers {
		rest := h
		for n := 0; rest.Name == redeliver.HeaderState && rest.Value != ""; n++ {
			field, after, ok := cutField(rest.Value)
			if !ok || n == maxPackedFields {
				break
			}
			if field.Name != "" && f(field) {
				return field
			}
			rest.Value = after
		}
		if rest.Name == redeliver.HeaderState && rest.Value == "" {
			continue
		}
		if f(rest) {
			return rest
		}
	}
	return Header{}
}

// cutField cuts the first field off a value of HeaderState. Its name is empty if a later version has added the field.
func cutField(packed string) (field Header, rest string, ok bool) {
	if len(packed) < packedPrefix {
		return field, packed, false
	}
	n := 0
	for _, digit := range []byte(packed[1:packedPrefix]) {
		if digit < '0' || digit > '9' {
			return field, packed, false
		}
		n = 10*n + int(digit-'0')
	}
	end := packedPrefix + n
	if end > len(packed) {
		return field, packed, false
	}
	if i := strings.IndexByte(stateNames, packed[0]); i >= 0 {
		field = Header{fields[i], packed[packedPrefix:end]}
	}
	return field, packed[end:], true
}

// HeaderNames returns the names of all headers that redeliver writes.
func HeaderNames() []string { return append(slices.Clone(fields[:]), redeliver.HeaderState) }

// fields are the headers of a state, in the order in which they are written. stateNames has the name of each in HeaderState; a field
// keeps its name.
var fields = [...]string{
	redeliver.HeaderAttempt, redeliver.HeaderDue, redeliver.HeaderGroup, redeliver.HeaderOrigin, redeliver.HeaderID, redeliver.HeaderFirstFailed, redeliver.HeaderLastFailed, redeliver.HeaderPostponed,
	redeliver.HeaderError, redeliver.HeaderErrorType, redeliver.HeaderFirstError, redeliver.HeaderReason, redeliver.HeaderOriginPartition, redeliver.HeaderOriginOffset,
	redeliver.HeaderOriginTimestamp, redeliver.HeaderPolicy, redeliver.HeaderReplays, redeliver.HeaderReplayed, redeliver.HeaderTrace, redeliver.HeaderTruncated,
}

const stateNames = "adgoiflpeyErnktsqwTX"

var allReasons = redeliver.Reasons()

// isFirst reports whether h is one of fields, and the first of its name. All repetitions of a name are one finding.
func (p *parser) isFirst(h Header) bool {
	for n := range fields {
		i := (p.next + n) % len(fields)
		if h.Name != fields[i] {
			continue
		}
		p.next = i + 1 // headers are written in the order of fields
		if p.seen[i]++; p.seen[i] == 2 {
			p.addFinding(h, "is there twice; the first is taken")
		}
		return p.seen[i] == 1
	}
	return false
}

type parser struct {
	state             redeliver.State
	findings          []redeliver.Finding
	partition, offset int64
	hasPartition      bool
	hasOffset         bool
	seen              [len(fields)]int
	next              int // the index in fields after the field that was read last
}

func (p *parser) addFinding(h Header, problem string) {
	p.findings = redeliver.AppendFinding(p.findings, redeliver.Finding{Header: h.Name, Value: h.Value, Problem: problem})
}

func (p *parser) read(h Header) {
	s := &p.state
	switch h.Name {
	case redeliver.HeaderAttempt:
		// A waiting message has had at least one attempt, and the count is written again after the next one.
		s.Attempts = int(p.count(h, limits.MaxAttempts, 1))
	case redeliver.HeaderReplays:
		s.Replays = int(p.count(h, limits.MaxAttempts, 0))
	case redeliver.HeaderReplayed:
		s.Replayed = p.time(h)
	case redeliver.HeaderOrigin:
		s.Origin = p.text(h, limits.MaxName)
	case redeliver.HeaderID:
		s.ID = p.text(h, limits.MaxName)
	case redeliver.HeaderError:
		if len(h.Value) <= maxOlderErrorText && utf8.ValidString(h.Value) { // no finding
			h.Value = limits.Cut(h.Value, limits.MaxErrorText)
		}
		s.Error = p.text(h, limits.MaxErrorText)
	case redeliver.HeaderErrorType:
		s.ErrorType = p.text(h, limits.MaxErrorType)
	case redeliver.HeaderFirstError:
		s.FirstError = p.text(h, limits.MaxErrorText)
	case redeliver.HeaderPolicy:
		// An older form has a schedule after the fingerprint and a space. A message of that form is no finding.
		h.Value, _, _ = strings.Cut(h.Value, " ")
		s.Policy = p.text(h, maxPolicy)
	case redeliver.HeaderReason:
		s.Reason = p.reason(h)
	case redeliver.HeaderTrace:
		s.Trace = p.trace(h)
	case redeliver.HeaderTruncated:
		s.Truncated = p.text(h, maxTruncated)
	case redeliver.HeaderDue:
		s.Due = p.time(h)
	case redeliver.HeaderFirstFailed:
		s.FirstFailed = p.time(h)
	case redeliver.HeaderLastFailed:
		s.LastFailed = p.time(h)
	case redeliver.HeaderPostponed:
		s.PostponedSince = p.time(h)
	case redeliver.HeaderOriginTimestamp:
		s.Source.Timestamp = p.time(h)
	case redeliver.HeaderOriginPartition:
		p.partition, p.hasPartition = p.coordinate(h, math.MaxInt32)
	case redeliver.HeaderOriginOffset:
		p.offset, p.hasOffset = p.coordinate(h, math.MaxInt64)
	}
}

// combine sets the fields that depend on more than one header, and the group.
func (p *parser) combine(group string) {
	s := &p.state
	if p.hasPartition && p.hasOffset {
		s.Source.Known = true
		s.Source.Partition, s.Source.Offset = int32(p.partition), p.offset
	}
	if s.FirstError == s.Error {
		s.FirstError = ""
	}
	s.Group = group // the group in the header was compared, and may be cut
}

func (p *parser) count(h Header, maxValue, instead int64) int64 {
	n, err := strconv.ParseInt(h.Value, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		p.addFinding(h, fmt.Sprintf("is not a whole number from 0 to %d; %d is taken", maxValue, instead))
		return instead
	}
	return n
}

// coordinate reads a partition or an offset, for which no other value can be used.
func (p *parser) coordinate(h Header, maxValue int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(h.Value, 10, 64)
	if err != nil || n < 0 || n > maxValue {
		p.addFinding(h, fmt.Sprintf("is not a whole number from 0 to %d; the place in the origin is unknown", maxValue))
		return 0, false
	}
	return n, true
}

func (p *parser) text(h Header, maxBytes int) string {
	if len(h.Value) > maxBytes || !utf8.ValidString(h.Value) {
		p.addFinding(h, fmt.Sprintf("is longer than %d bytes or no UTF-8; it is cut", maxBytes))
		return limits.Cut(h.Value, maxBytes)
	}
	return h.Value
}

func (p *parser) time(h Header) time.Time {
	t, ok := limits.ParseTime(h.Value)
	if !ok {
		p.addFinding(h, "is no RFC 3339 time of the years 1 to 9999; it is ignored")
	}
	return t
}

func (p *parser) reason(h Header) redeliver.Reason {
	if r := redeliver.Reason(h.Value); slices.Contains(allReasons, r) {
		return r
	}
	p.addFinding(h, "is not one of redeliver's reasons; it is ignored")
	return ""
}

func (p *parser) trace(h Header) string {
	if st := (redeliver.State{Trace: h.Value}); st.TraceID() != "" {
		return h.Value
	}
	p.addFinding(h, "is not a traceparent of W3C's Trace Context, version 00; it is ignored")
	return ""
}
