//go:build prove

package pika_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
)

// observation is what a handler got at one attempt.
type observation struct {
	wire
	id, uuid string
	attempt  int
}

// observations returns what the handler got of n messages, for each attempt. key identifies messages.
func (b *fixture) observations(messages, attempts int, key func(wire) string) map[string][]observation {
	b.Helper()
	found := make(map[string][]observation)
	for _, m := range b.peer.Take(b.T, b.queue+".seen", messages*attempts) {
		s := seen(b.T, m)
		k := key(s.wire)
		found[k] = append(found[k], s)
	}
	for k, all := range found {
		for i, s := range all {
			if s.attempt != i+1 || len(all) != attempts {
				b.Errorf("%.40q: run %d of %d was attempt %d, want %d attempts", k, i+1, len(all), s.attempt, attempts)
			}
		}
	}
	return found
}

func seen(t *testing.T, m wire) observation {
	t.Helper()
	s := observation{wire: wire{Props: m.Props, Headers: headers{}, Body: m.Body}}
	for name, v := range m.Headers {
		switch rest, ours := strings.CutPrefix(name, "seen-"); {
		case !ours:
			s.Headers[name] = v
		case rest == "attempt":
			s.attempt, _ = strconv.Atoi(v.text()) // 0 is not an attempt, and fails the test
		case rest == "id":
			s.id = v.text()
		case rest == "uuid":
			s.uuid = v.text()
		case rest == "exchange":
			s.Exchange = v.text()
		case rest == "key":
			s.Key = v.text()
		case rest == "body":
			if v.Bytes != "01" {
				t.Errorf("the payload of %.40q is not its body", m.Body)
			}
		case rest == "expiration" || rest == "user_id":
			s.Props[rest] = v.text()
		default:
			s.Headers[rest] = v
		}
	}
	return s
}

// byBody identifies messages by their bodies.
func byBody(m wire) string { return string(m.Body) }

// deadLetters gets n dead letters.
func (b *fixture) deadLetters(n int, key func(wire) string) map[string]wire {
	b.Helper()
	found := make(map[string]wire)
	for _, m := range b.peer.Take(b.T, b.queue+".dlq", n) {
		found[key(m)] = m
	}
	return found
}

// wantSame compares everything on the wire.
func wantSame(t *testing.T, what string, got, want wire) {
	t.Helper()
	if got.Exchange != want.Exchange || got.Key != want.Key {
		t.Errorf("%s has the exchange %q and the routing key %q, want %q and %q", what, got.Exchange, got.Key, want.Exchange, want.Key)
	}
	reportDifferences(t, what, got.Props, want.Props)
	reportDifferences(t, what, got.Headers, want.Headers)
	if !bytes.Equal(got.Body, want.Body) {
		t.Errorf("%s has a body of %d bytes, %.40q, want %d bytes, %.40q", what, len(got.Body), got.Body, len(want.Body), want.Body)
	}
}

// reportDifferences reports entries that differ.
func reportDifferences[M ~map[string]V, V any](t *testing.T, what string, got, want M) {
	t.Helper()
	show := func(m M, name string) string {
		v, ok := m[name]
		if !ok {
			return "nothing"
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	names := maps.Clone(got)
	if names == nil {
		names = make(M)
	}
	maps.Copy(names, want)
	for name := range names {
		if g, w := show(got, name), show(want, name); g != w {
			t.Errorf("%s has %s %.200s, want %.200s", what, name, g, w)
		}
	}
}

// wantDeadLetter returns the expected dead letter of a message, without redeliver's state.
func (b *fixture) wantDeadLetter(m wire) wire {
	w := wire{Key: b.queue + ".dlq", Props: maps.Clone(m.Props), Headers: headers{}, Body: m.Body}
	if w.Props == nil {
		w.Props = props{}
	}
	w.Headers[amqp.HeaderExchange], w.Headers[amqp.HeaderRoutingKey] = text(m.Exchange), text(m.Key)
	foreign := make(map[string]value)
	for name, v := range m.Headers {
		switch {
		case name == "CC":
			w.Headers[amqp.HeaderCC] = v
		case strings.HasPrefix(name, redeliver.HeaderPrefix):
			foreign[name] = v
		default:
			w.Headers[name] = v
		}
	}
	if len(foreign) > 0 {
		w.Headers[amqp.HeaderForeign] = table(foreign)
	}
	for property, header := range map[string]string{"expiration": amqp.HeaderExpiration, "user_id": amqp.HeaderUserID, "priority": amqp.HeaderPriority} {
		if v, ok := w.Props[property]; ok {
			w.Headers[header] = text(fmt.Sprint(v))
			delete(w.Props, property)
		}
	}
	if mode := w.Props["delivery_mode"]; mode == nil {
		w.Headers[amqp.HeaderDeliveryMode] = text("0")
	} else if mode != 2 {
		w.Headers[amqp.HeaderDeliveryMode] = text(fmt.Sprint(mode))
	}
	w.Props["delivery_mode"] = 2
	return w
}

// state removes redeliver's own headers from a dead letter, except those that replace the original's.
func state(m *wire) map[string]string {
	ours := make(map[string]string)
	for name, v := range m.Headers {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) && !strings.HasPrefix(name, "redeliver-amqp-") {
			ours[name] = v.text()
			delete(m.Headers, name)
		}
	}
	return ours
}
