package sidecar

import (
	"net/http"
	"strings"
	"testing"
)

func events(m *Message) (http.Header, map[string]string) {
	h := eventHeader(m, "shop.order")
	attributes := make(map[string]string)
	for name, values := range h {
		if a, ok := strings.CutPrefix(name, "Ce-"); ok {
			attributes[a] = strings.Join(values, "|")
		}
	}
	return h, attributes
}

// A message that is not an event becomes one.
func TestAMessageBecomesAnEvent(t *testing.T) {
	m := newMessage()
	m.State.Origin, m.Key = "orders/ü", []byte("o 1")
	h, got := events(m)
	want := map[string]string{
		"specversion": "1.0", "id": "orders/0/17", "source": "/orders%252F%25C3%25BC", "type": "shop.order",
		"time": "2026-01-31T12:00:00.000Z", "partitionkey": "o%201",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) || h.Get("Redeliver-Attempt") != "2" || h[ownField("tenant")] == nil {
		t.Errorf("%v, %v", got, h)
	}
}

// A message that is already an event in a broker's binding stays unchanged.
func TestAnEventStaysUnchanged(t *testing.T) {
	for _, p := range []string{"ce_", "cloudEvents_", "cloudEvents:", "ce-"} {
		m := newMessage()
		m.Headers = []Header{
			{p + "id", "old"}, {p + "id", "e 1"}, {p + "source", "/bank"}, {p + "type", "bank.charge"}, {p + "specversion", "1.0"}, {p + "tenant", "ä"},
			{p + "datacontenttype", "text/plain"}, {p + "bad-name", "x"}, {"tenant", "acme"}, {p + "broken", "\xff"}, {"content-type", "application/json"},
		}
		h, got := events(m)
		for name, value := range map[string]string{"id": "e%201", "source": "/bank", "type": "bank.charge", "specversion": "1.0", "tenant": "%C3%A4", "partitionkey": "o-1%0A"} {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", p, name, got[name], value)
			}
		}
		if len(got) != 7 || h.Get("Content-Type") != "application/json" || h[ownField(p+"id")] != nil || h[ownField(p+"bad-name")] == nil {
			t.Errorf("%s: %v, %v", p, got, h)
		}
	}
	m := newMessage()
	m.Headers = []Header{{"ce_specversion", "0.3"}}
	if _, got := events(m); got["specversion"] != "0.3" {
		t.Errorf("an event of another version: %v", got)
	}
	m = newMessage()
	m.Headers = []Header{{"ce_type", strings.Repeat("x", maxHeaderBytes)}}
	if h, got := events(m); got["type"] != "shop.order" || h.Get(fieldOmitted) != "1" {
		t.Errorf("an event whose type has no room: %v", got)
	}
	m = newMessage()
	m.ContentType = "application/cloudevents+json; charset=utf-8"
	if h, got := events(m); len(got) != 0 || h.Get("Content-Type") != m.ContentType {
		t.Errorf("a structured event gets attributes in headers: %v", got)
	}
}
