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

// message is one with a header of each kind that somebody may mean ill with.
func message() *Message {
	return &Message{
		State: redeliver.State{ID: "orders/0/17", Attempts: 1, Origin: "orders", Group: "billing", FirstFailed: noon, Replays: 2},
		Key:   []byte("o-1\n"), Body: []byte{0, 255, '\n'}, Timestamp: noon,
		Properties: []Header{{"Partition", "0"}, {"Routing-Key", "a b"}},
		Headers: []Header{
			{"tenant", "acme"}, {"Host", "evil.example"}, {"Connection", "close"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "9"},
			{"Authorization", "Bearer x"}, {"X-Forwarded-For", "127.0.0.1"}, {"Redeliver-Attempt", "99"}, {"Redeliver-Header-tenant", "other"},
			{"a\r\nX-Evil: 1", "x"}, {"crlf", "x\r\nX-Evil: 1\r\n\r\nbody"}, {"nul", "a\x00b"}, {"", "nameless"}, {"ü", "ä 100%\""}, {"two", "1"}, {"two", "2"},
			{"TraceParent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {"tracestate", "a=1,\r\nX-Evil: 1"},
		},
	}
}

// What is sent is read back by a server as it was, in its place, and nothing else is there.
func TestRequestHeader(t *testing.T) {
	var wire bytes.Buffer
	req, err := http.NewRequest(http.MethodPost, "http://handler:8080/orders", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = requestHeader(message())
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
		"Redeliver-Key": {"o-1%0A"}, "Redeliver-Property-Partition": {"0"}, "Redeliver-Property-Routing-Key": {"a%20b"},
		"Redeliver-Header-Tenant": {"acme"}, "Redeliver-Header-Host": {"evil.example"}, "Redeliver-Header-Connection": {"close"},
		"Redeliver-Header-Transfer-Encoding": {"chunked"}, "Redeliver-Header-Content-Length": {"9"}, "Redeliver-Header-Authorization": {"Bearer%20x"},
		"Redeliver-Header-X-Forwarded-For": {"127.0.0.1"}, "Redeliver-Header-Redeliver-Attempt": {"99"}, "Redeliver-Header-Redeliver-Header-Tenant": {"other"},
		"Redeliver-Header-A%0d%0ax-Evil%3a%201": {"x"}, "Redeliver-Header-Crlf": {"x%0D%0AX-Evil:%201%0D%0A%0D%0Abody"}, "Redeliver-Header-Nul": {"a%00b"},
		"Redeliver-Header-": {"nameless"}, "Redeliver-Header-%c3%bc": {"%C3%A4%20100%25%22"}, "Redeliver-Header-Two": {"1", "2"},
		"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Redeliver-Header-Tracestate": {"a=1,%0D%0AX-Evil:%201"},
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

// Headers without end are cut, and that is said.
func TestRequestHeaderIsBounded(t *testing.T) {
	m := message()
	m.Key = bytes.Repeat([]byte("k"), mostKey+1)
	m.Headers = nil
	for i := range 1000 {
		m.Headers = append(m.Headers, Header{"h" + strconv.Itoa(i), "value"})
	}
	h := requestHeader(m)
	if n := len(h[ownField("h0")]); n != 1 || len(h) > mostHeaders+15 || h.Get("Redeliver-Omitted") != strconv.Itoa(1000-mostHeaders+len(m.Properties)+1) {
		t.Errorf("%d fields, %s omitted", len(h), h.Get("Redeliver-Omitted"))
	}
	m.Headers = []Header{{"large", strings.Repeat("x", mostHeaderBytes)}, {"small", "s"}}
	if h := requestHeader(m); h[ownField("small")] == nil || h[ownField("large")] != nil || h.Get("Redeliver-Omitted") != "2" {
		t.Errorf("%v", h)
	}
}

func FuzzEscape(f *testing.F) {
	for _, h := range message().Headers {
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
