package sidecar

import (
	"net/http"
	"strconv"
	"strings"
)

// Bounds of what a request carries in its headers of what is in the message: servers
// refuse more, Node's 16 KiB in all, the URL and Authorization included, and Python's a
// hundred fields.
const (
	maxHeaderBytes = 8 << 10 // of all, names and line ends included, as they are written
	maxHeaders     = 64      // fields, beside those that each request has
	maxKey         = 1 << 10 // of the key, as it is written
	maxTrace       = 1 << 10 // of each header that is about tracing
)

const (
	fieldKey     = "Redeliver-Key"
	fieldOmitted = "Redeliver-Omitted"
	ofProperty   = "Redeliver-Property-"
	ofHeader     = "Redeliver-Header-"
)

// traced are the headers that go under their own names, because every tracing library
// looks for them there. Several of the first are one too many; the others are lists.
var traced = [...]string{"Traceparent", "Tracestate", "Baggage"}

// requestHeader returns the headers of a request for a message. A message's headers get a prefix of ours, so
// that none can be Host, Authorization or X-Forwarded-For.
func requestHeader(m *Message) http.Header { return newHeading(m).end(m, m.Headers) }

// heading is the header of a request that is being made.
type heading struct {
	header  http.Header
	room    []string // of all values at once
	left    budget
	omitted int
}

// newHeading begins with what each request has. It has room in any case: ids and names
// of topics are bounded elsewhere.
func newHeading(m *Message) *heading {
	most := 18 + len(m.Headers) + len(m.Properties)
	h := &heading{make(http.Header, most), make([]string, 0, most), budget{bytes: maxHeaderBytes, fields: maxHeaders}, 0}
	h.header["User-Agent"] = userAgent
	h.must("Content-Type", m.contentType())
	m.fields(func(name, value string) { h.must(name, escape(value)) })
	return h
}

// end adds the key, the properties, and what is given of the message's own headers.
func (h *heading) end(m *Message, own []Header) http.Header {
	if m.Key != nil {
		if key := escape(string(m.Key)); len(key) <= maxKey {
			h.add(fieldKey, key)
		} else {
			h.omitted++
		}
	}
	done := h.trace(own)
	for _, p := range m.Properties {
		h.add(ofProperty+p.Name, escape(p.Value))
	}
	for _, o := range own {
		if i := asTraced(o); i >= 0 && done[i] {
			continue
		}
		h.add(ownField(o.Name), escape(o.Value))
	}
	if h.omitted > 0 {
		h.set(fieldOmitted, strconv.Itoa(h.omitted))
	}
	return h.header
}

// trace adds the headers that are about tracing, and returns which of them are there now.
func (h *heading) trace(own []Header) (done [len(traced)]bool) {
	var values [len(traced)]string
	for _, o := range own {
		switch i := asTraced(o); {
		case i < 0:
		case i == 0 || values[i] == "":
			values[i] = o.Value // of several ids the last counts
		default:
			values[i] += "," + o.Value // what one list says in several fields
		}
	}
	for i, value := range values {
		if value != "" && len(value) <= maxTrace && h.left.take(length(traced[i], value)) {
			h.set(traced[i], value)
			done[i] = true
		}
	}
	return done
}

// asTraced is which of traced a header is; -1 for all others, and for one whose value
// would have to be escaped.
func asTraced(own Header) int {
	for i, name := range traced {
		if strings.EqualFold(own.Name, name) && own.Value != "" && own.Value == strings.TrimSpace(own.Value) && visible(own.Value) {
			return i
		}
	}
	return -1
}

// set adds a field that is not there yet.
func (h *heading) set(name, value string) {
	h.room = append(h.room, value)
	h.header[name] = h.room[len(h.room)-1 : len(h.room) : len(h.room)]
}

// must is set of what no request is without.
func (h *heading) must(name, value string) {
	h.left.bytes -= length(name, value)
	h.set(name, value)
}

// add adds a field, or one more of the name, where there is room.
func (h *heading) add(name, value string) {
	if !h.left.take(length(name, value)) {
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

// budget bounds the headers that come from the wire.
type budget struct{ bytes, fields int }

func (b *budget) take(n int) bool {
	if b.fields == 0 || n > b.bytes {
		return false
	}
	b.bytes -= n
	b.fields--
	return true
}

// length is how much of a request a field takes.
func length(name, value string) int { return len(name) + len(value) + len(": \r\n") }

const hex = "0123456789ABCDEF"

// escape writes a value in percent, as CloudEvents does: what is not printable ASCII,
// the space, the quote and the percent sign. So a value can end no line, and every
// value can be read back.
func escape(value string) string {
	return percent(value, func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })
}

// ownField is the field in which a message's own header of that name goes.
func ownField(name string) string { return ofHeader + headerName(name) }

// headerName writes a header's name as part of one: letters, digits and - . ~ stand for
// themselves, all else in percent. So does _ not: many servers drop a field with one in
// its name, because in CGI it would be the same as one with a -.
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
