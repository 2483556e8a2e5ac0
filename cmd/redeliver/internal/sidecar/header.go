package sidecar

import (
	"net/http"
	"strconv"
	"strings"
)

// Limits of a message's data in the headers of a request. Servers have limits, too: Node 16 KiB in all, including the
// URL and Authorization, and Python a hundred fields.
const (
	maxHeaderBytes = 8 << 10 // in all, including names and line ends, escaped
	maxHeaders     = 64      // fields, besides those of every request
	maxKey         = 1 << 10 // of the key, escaped
	maxTrace       = 1 << 10 // of each tracing header
)

const (
	fieldKey        = "Redeliver-Key"
	fieldError      = "Redeliver-Error"
	fieldFirstError = "Redeliver-First-Error"
	fieldOmitted    = "Redeliver-Omitted"
	ofProperty      = "Redeliver-Property-"
	ofHeader        = "Redeliver-Header-"
)

// tracingHeaders keep their names in requests, because every tracing library looks for them. Baggage is not one of
// them: any publisher could set values that a program may trust. Traceparent has one value, and Tracestate is a list.
var tracingHeaders = [...]string{"Traceparent", "Tracestate"}

// requestHeader returns the headers of a request for a message. The message's own headers get a prefix, so that none
// can be Host, Authorization or X-Forwarded-For.
func requestHeader(m *Message) http.Header { return newHeaderBuilder(m).end(m, m.Headers) }

// headerBuilder builds the header of a request.
type headerBuilder struct {
	header  http.Header
	values  []string // backs the values of all fields
	left    budget
	omitted int
}

// newHeaderBuilder returns a builder that has the fields of every request. They always fit, because the lengths of ids
// and topics are limited elsewhere.
func newHeaderBuilder(m *Message) *headerBuilder {
	most := 20 + min(len(m.Headers)+len(m.Properties), maxHeaders)
	h := &headerBuilder{make(http.Header, most), make([]string, 0, most), budget{bytes: maxHeaderBytes, fields: maxHeaders}, 0}
	h.header["User-Agent"] = userAgent
	h.setAlways("Content-Type", m.contentType())
	m.fields(func(name, value string) { h.setAlways(name, escape(value)) })
	return h
}

// end adds the key, the errors, the properties and the given headers of the message.
func (h *headerBuilder) end(m *Message, own []Header) http.Header {
	if m.Key != nil {
		if key := escape(string(m.Key)); len(key) <= maxKey {
			h.add(fieldKey, key)
		} else {
			h.omitted++
		}
	}
	done := h.addTracing(own)
	m.errors(func(name, value string) {
		if value = escape(value); length(name, value) > h.left.bytes {
			h.omitted++
			return
		}
		h.setAlways(name, value) // not one of the message's own fields
	})
	for _, p := range m.Properties {
		h.add(ofProperty+p.Name, escape(p.Value))
	}
	for _, o := range own {
		if i := tracingIndex(o); i >= 0 && done[i] {
			continue
		}
		h.add(ownField(o.Name), escape(o.Value))
	}
	if h.omitted > 0 {
		h.set(fieldOmitted, strconv.Itoa(h.omitted))
	}
	return h.header
}

// addTracing adds the tracing headers and reports which of them are set.
func (h *headerBuilder) addTracing(own []Header) (done [len(tracingHeaders)]bool) {
	var values [len(tracingHeaders)]string
	for _, o := range own {
		switch i := tracingIndex(o); {
		case i < 0:
		case i == 0 || values[i] == "":
			values[i] = o.Value // the last of several ids counts
		default:
			values[i] += "," + o.Value // a list in several fields
		}
	}
	for i, value := range values {
		if value != "" && len(value) <= maxTrace && h.left.reserve(length(tracingHeaders[i], value)) {
			h.set(tracingHeaders[i], value)
			done[i] = true
		}
	}
	return done
}

// tracingIndex returns the index of a header in tracingHeaders. It returns -1 for other headers, and for values that
// would have to be escaped.
func tracingIndex(own Header) int {
	for i, name := range tracingHeaders {
		if strings.EqualFold(own.Name, name) && own.Value != "" && own.Value == strings.TrimSpace(own.Value) && visible(own.Value) {
			return i
		}
	}
	return -1
}

// set sets a field that is not set yet.
func (h *headerBuilder) set(name, value string) {
	h.values = append(h.values, value)
	h.header[name] = h.values[len(h.values)-1 : len(h.values) : len(h.values)]
}

// setAlways sets a field that is not one of maxHeaders.
func (h *headerBuilder) setAlways(name, value string) {
	h.left.bytes -= length(name, value)
	h.set(name, value)
}

// add adds a field, or another value of it, if it fits.
func (h *headerBuilder) add(name, value string) {
	if !h.left.reserve(length(name, value)) {
		h.omitted++
		return
	}
	if others, twice := h.header[name]; twice {
		h.header[name] = append(others, value)
		return
	}
	h.set(name, value)
}

var userAgent = []string{"redeliver"}

// budget is the space that is left for a message's data.
type budget struct{ bytes, fields int }

func (b *budget) reserve(n int) bool {
	if b.fields == 0 || n > b.bytes {
		return false
	}
	b.bytes -= n
	b.fields--
	return true
}

// length returns the size of a field in a request.
func length(name, value string) int { return len(name) + len(value) + len(": \r\n") }

const hex = "0123456789ABCDEF"

// escape percent-encodes a value as CloudEvents does: all but printable ASCII, and also the space, the quote and the
// percent sign. So a value cannot end its line, and can be decoded.
func escape(value string) string {
	return percent(value, func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })
}

// ownField returns the name of the field for a message's own header.
func ownField(name string) string { return ofHeader + headerName(name) }

// headerName encodes a header's name as part of a field's name. It percent-encodes all but letters, digits and - . ~.
// It encodes _ because many servers drop fields with one: in CGI it is the same as a -.
func headerName(name string) string {
	return percent(name, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '~'
	})
}

func percent(text string, plain func(byte) bool) string {
	special := 0
	for i := range len(text) {
		if !plain(text[i]) {
			special++
		}
	}
	if special == 0 {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2*special)
	for i := range len(text) {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}
