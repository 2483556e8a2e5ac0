package sidecar

import (
	"bufio"
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

// newMessage returns a message with a hostile header of each kind.
func newMessage() *Message {
	return &Message{
		State: redeliver.State{ID: "orders/0/17", Attempts: 1, Origin: "orders", Group: "billing", FirstFailed: noon, Replays: 2, Error: "ö\ndeclined", FirstError: "timed out"},
		Key:   []byte("o-1\n"), Body: []byte{0, 255, '\n'}, Timestamp: noon,
		Properties: []Header{{"Partition", "0"}, {"Routing-Key", "a b"}},
		Headers: []Header{
			{"tenant", "acme"}, {"Host", "evil.example"}, {"Connection", "close"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "9"},
			{"Authorization", "Bearer x"}, {"X-Forwarded-For", "127.0.0.1"}, {"Redeliver-Attempt", "99"}, {"Redeliver-Header-tenant", "other"},
			{"a\r\nX-Evil: 1", "x"}, {"crlf", "x\r\nX-Evil: 1\r\n\r\nbody"}, {"nul", "a\x00b"}, {"", "nameless"}, {"ü", "ä 100%\""}, {"two", "1"}, {"two", "2"}, {"tenant_id", "7"},
			{"TraceParent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {"tracestate", "a=1,\r\nX-Evil: 1"},
		},
	}
}

// A server reads exactly the headers that were sent.
func TestRequestHeader(t *testing.T) {
	var wire bytes.Buffer
	req, err := http.NewRequest(http.MethodPost, "http://handler:8080/orders", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = requestHeader(newMessage())
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"User-Agent": {"redeliver"}, "Content-Type": {octets}, "Content-Length": {"4"},
		"Redeliver-Id": {"orders/0/17"}, "Redeliver-Attempt": {"2"}, "Redeliver-Origin": {"orders"}, "Redeliver-Group": {"billing"},
		"Redeliver-Timestamp": {"2026-01-31T12:00:00.000Z"}, "Redeliver-First-Failed": {"2026-01-31T12:00:00.000Z"}, "Redeliver-Replays": {"2"},
		"Redeliver-Error": {"%C3%B6%0Adeclined"}, "Redeliver-First-Error": {"timed%20out"},
		"Redeliver-Key": {"o-1%0A"}, "Redeliver-Property-Partition": {"0"}, "Redeliver-Property-Routing-Key": {"a%20b"},
		"Redeliver-Header-Tenant": {"acme"}, "Redeliver-Header-Host": {"evil.example"}, "Redeliver-Header-Connection": {"close"},
		"Redeliver-Header-Transfer-Encoding": {"chunked"}, "Redeliver-Header-Content-Length": {"9"}, "Redeliver-Header-Authorization": {"Bearer%20x"},
		"Redeliver-Header-X-Forwarded-For": {"127.0.0.1"}, "Redeliver-Header-Redeliver-Attempt": {"99"}, "Redeliver-Header-Redeliver-Header-Tenant": {"other"},
		"Redeliver-Header-A%0d%0ax-Evil%3a%201": {"x"}, "Redeliver-Header-Crlf": {"x%0D%0AX-Evil:%201%0D%0A%0D%0Abody"}, "Redeliver-Header-Nul": {"a%00b"},
		"Redeliver-Header-": {"nameless"}, "Redeliver-Header-%c3%bc": {"%C3%A4%20100%25%22"}, "Redeliver-Header-Two": {"1", "2"},
		"Redeliver-Header-Tenant%5fid": {"7"},
		"Traceparent":                  {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Redeliver-Header-Tracestate": {"a=1,%0D%0AX-Evil:%201"},
	}
	for name, values := range got.Header {
		if strings.Join(values, "|") != strings.Join(want[name], "|") {
			t.Errorf("%s is %q, want %q", name, values, want[name])
		}
		delete(want, name)
	}
	if len(want) > 0 || got.Host != "handler:8080" || got.ContentLength != 4 || got.Close {
		t.Errorf("missing %v; host %s", want, got.Host)
	}
}

// Too many headers are omitted, and their number is sent.
func TestRequestHeaderIsBounded(t *testing.T) {
	m := newMessage()
	m.Key = bytes.Repeat([]byte("k"), maxKey+1)
	m.Headers = nil
	for i := range 1000 {
		m.Headers = append(m.Headers, Header{"h" + strconv.Itoa(i), "value"})
	}
	h := requestHeader(m)
	if n := len(h[ownField("h0")]); n != 1 || len(h) > maxHeaders+15 || h.Get("Redeliver-Omitted") != strconv.Itoa(1000-maxHeaders+len(m.Properties)+1) {
		t.Errorf("%d fields, %s omitted", len(h), h.Get("Redeliver-Omitted"))
	}
	m.Headers = []Header{{"large", strings.Repeat("x", maxHeaderBytes)}, {"small", "s"}}
	if h := requestHeader(m); h[ownField("small")] == nil || h[ownField("large")] != nil || h.Get("Redeliver-Omitted") != "2" {
		t.Errorf("%v", h)
	}
}

// The room for a request's fields once followed from the number of headers, of which most do not fit.
func TestRequestHeaderReservesNoRoomForOmittedHeaders(t *testing.T) {
	m := &Message{Headers: make([]Header, 1_000_000)}
	if room := cap(newHeaderBuilder(m).values); room > 100 {
		t.Errorf("there is room for %d values", room)
	}
}

// All data of a message together has one limit, counted as escaped, also in an event.
func TestRequestHeaderHasOneBound(t *testing.T) {
	full := func(value string) *Message {
		m := newMessage()
		m.State.ID, m.State.Origin, m.State.Group = strings.Repeat("ü", 256), strings.Repeat("ö", 120), strings.Repeat("g", 249)
		m.State.Error, m.State.FirstError = strings.Repeat("ü", 256), strings.Repeat("ö", 256)
		m.Key, m.Headers = []byte(value), nil
		for i := range 70 {
			m.Headers = append(m.Headers, Header{"h" + strconv.Itoa(i), value}, Header{"ce_a" + strconv.Itoa(i), value}, Header{tracingHeaders[i%len(tracingHeaders)], value})
		}
		return m
	}
	for _, value := range []string{"x", "ä", strings.Repeat("x", 40), strings.Repeat("x", 900), strings.Repeat("ä", 170), strings.Repeat("ä", 900), strings.Repeat("x", maxHeaderBytes)} {
		for name, h := range map[string]http.Header{"a post": requestHeader(full(value)), "an event": eventHeader(full(value), "shop.order")} {
			size, fields := 0, 0
			for name, values := range h {
				for _, v := range values {
					fields++
					if name != "User-Agent" && name != fieldOmitted {
						size += len(name + ": " + v + "\r\n")
					}
				}
			}
			if size > maxHeaderBytes || fields > maxHeaders+18 || h.Get(fieldOmitted) == "" || h.Get("Redeliver-Id") == "" {
				t.Errorf("%s with %.10s, %d bytes: %d bytes, %d fields, %s omitted", name, value, len(value), size, fields, h.Get(fieldOmitted))
			}
			for _, key := range []string{fieldKey, "Ce-partitionkey"} {
				if values := h[key]; values != nil && len(values[0]) > maxKey {
					t.Errorf("%s: %s of %d bytes", name, key, len(values[0]))
				}
			}
		}
	}
	m := newMessage()
	m.Key = bytes.Repeat([]byte("ä"), maxKey/3) // two bytes, and six when escaped
	if h, got := events(m); got["partitionkey"] != "" || h[fieldKey] != nil || h.Get(fieldOmitted) != "1" {
		t.Errorf("%v", h)
	}
}

// Several tracing headers become one list, and none is lost because it is long.
func TestRequestHeaderTraces(t *testing.T) {
	long := strings.Repeat("x", maxTrace)
	for name, c := range map[string]struct {
		own  []Header
		want map[string][]string
	}{
		"several":     {[]Header{{"tracestate", "a=1"}, {"Tracestate", "b=2,c=3"}, {"baggage", "x=1"}, {"baggage", "y=2"}}, map[string][]string{"Tracestate": {"a=1,b=2,c=3"}, ofHeader + "baggage": {"x=1", "y=2"}}},
		"two parents": {[]Header{{"traceparent", "00-1"}, {"traceparent", "00-2"}}, map[string][]string{"Traceparent": {"00-2"}}},
		"as long":     {[]Header{{"tracestate", long}}, map[string][]string{"Tracestate": {long}}},
		"too long":    {[]Header{{"tracestate", long + "x"}}, map[string][]string{ofHeader + "tracestate": {long + "x"}}},
		"long in all": {[]Header{{"tracestate", "x=1"}, {"tracestate", long}}, map[string][]string{ofHeader + "tracestate": {"x=1", long}}},
		"one is bad":  {[]Header{{"tracestate", "x=1"}, {"tracestate", "ü"}}, map[string][]string{"Tracestate": {"x=1"}, ofHeader + "tracestate": {"%C3%BC"}}},
		"nothing":     {[]Header{{"tracestate", ""}}, map[string][]string{ofHeader + "tracestate": {""}}},
	} {
		h := requestHeader(&Message{Headers: c.own})
		for _, field := range []string{"Traceparent", "Tracestate", "Baggage", ofHeader + "traceparent", ofHeader + "tracestate", ofHeader + "baggage", fieldOmitted} {
			if got := strings.Join(h[field], " and "); got != strings.Join(c.want[field], " and ") {
				t.Errorf("%s: %s is %.100q", name, field, got)
			}
		}
	}
}

func FuzzEscape(f *testing.F) {
	for _, h := range newMessage().Headers {
		f.Add(h.Name)
		f.Add(h.Value)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, written := range []string{escape(text), headerName(text)} {
			back, err := url.PathUnescape(written)
			if err != nil || back != text || !visible(written) || strings.ContainsAny(written, " \"") {
				t.Errorf("%q is written %q and read %q, %v", text, written, back, err)
			}
		}
	})
}

func TestContentType(t *testing.T) {
	for _, c := range []struct {
		own, header, want string
	}{
		{"", "", octets}, {"application/json", "text/plain", "application/json"}, {"", "text/plain; charset=utf-8", "text/plain; charset=utf-8"},
		{"", "a/b\r\nX-Evil: 1", octets}, {"", "two words", octets}, {"", "a/" + strings.Repeat("b", 300), octets},
	} {
		m := &Message{ContentType: c.own}
		if c.header != "" {
			m.Headers = []Header{{"Content-type", c.header}}
		}
		if got := m.contentType(); got != c.want {
			t.Errorf("%q, %q is %q", c.own, c.header, got)
		}
	}
}
