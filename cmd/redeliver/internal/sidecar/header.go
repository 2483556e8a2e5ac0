package sidecar

import (
	"net/http"
	"strconv"
	"strings"
)

// Bounds of what a request carries in its headers: servers refuse more, Node's 16 KiB
// in all, Python's a hundred fields.
const (
	mostHeaderBytes = 12 << 10 // of the message's own headers, as they are written
	mostHeaders     = 64
	mostKey         = 4 << 10 // of the key, as it is written
)

const (
	fieldKey     = "Redeliver-Key"
	fieldOmitted = "Redeliver-Omitted"
	ofProperty   = "Redeliver-Property-"
	ofHeader     = "Redeliver-Header-"
)

// traced are the headers that go under their own names, because every tracing library
// looks for them there.
var traced = []string{"traceparent", "tracestate", "baggage"}

// requestHeader is what is said of a message in the headers of a request. A message's
// headers stand behind a prefix of ours, so that none can be Host, Authorization or
// X-Forwarded-For, whoever wrote it.
func requestHeader(m *Message) http.Header {
	most := 12 + len(m.Headers) + len(m.Properties)
	h, room := make(http.Header, most), make([]string, 0, most) // the room of all values at once
	set := func(name, value string) {
		room = append(room, value)
		h[name] = room[len(room)-1 : len(room) : len(room)]
	}
	h["User-Agent"] = userAgent
	set("Content-Type", m.contentType())
	m.fields(func(name, value string) { set(name, escape(value)) })
	var omitted int
	if m.Key != nil {
		if key := escape(string(m.Key)); len(key) <= mostKey {
			set(fieldKey, key)
		} else {
			omitted++
		}
	}
	left := budget{bytes: mostHeaderBytes, fields: mostHeaders}
	add := func(name, value string) {
		if !left.take(len(name) + len(value) + len(": \r\n")) {
			omitted++
			return
		}
		if others, twice := h[name]; twice {
			h[name] = append(others, value)
			return
		}
		set(name, value)
	}
	for _, p := range m.Properties {
		add(ofProperty+p.Name, escape(p.Value))
	}
	for _, own := range m.Headers {
		if name := asTraced(own); name != "" {
			set(name, own.Value)
			continue
		}
		add(ownField(own.Name), escape(own.Value))
	}
	if omitted > 0 {
		set(fieldOmitted, strconv.Itoa(omitted))
	}
	return h
}

var userAgent = []string{"redeliver"}

// budget bounds what comes from the wire.
type budget struct{ bytes, fields int }

func (b *budget) take(n int) bool {
	if b.fields == 0 || n > b.bytes {
		return false
	}
	b.bytes -= n
	b.fields--
	return true
}

// asTraced is the name under which a header goes that is about tracing; empty for all
// others, and for one whose value would have to be escaped.
func asTraced(own Header) string {
	for _, name := range traced {
		if strings.EqualFold(own.Name, name) && len(own.Value) <= 1024 && own.Value == strings.TrimSpace(own.Value) && visible(own.Value) {
			return http.CanonicalHeaderKey(name)
		}
	}
	return ""
}

const hex = "0123456789ABCDEF"

// escape writes a value in percent, as CloudEvents does: what is not printable ASCII,
// the space, the quote and the percent sign. So a value can end no line, and every
// value can be read back.
func escape(value string) string {
	return percent(value, func(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' })
}

// ownField is the field in which a message's own header of that name goes.
func ownField(name string) string { return ofHeader + headerName(name) }

// headerName writes a header's name as part of one: letters, digits and - . _ ~ stand
// for themselves, all else in percent.
func headerName(name string) string {
	return percent(name, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
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
