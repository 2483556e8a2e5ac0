//go:build prove

// Package pika_test uses an independent client to compare published messages with what the handler gets at every
// attempt and with the DLQ.
package pika_test

import (
	"encoding/hex"
	"testing"

	"github.com/redeliver/redeliver/integration/fidelity"
)

// value is a header's value on the wire: its type and its bytes.
type value struct {
	Kind  string           `json:"k,omitempty"`
	Bytes string           `json:"v,omitempty"` // as hex digits
	Table map[string]value `json:"t,omitempty"`
	Array []value          `json:"a,omitempty"`
	Py    string           `json:"py,omitempty"` // as users of pika write it
}

func raw(kind string, b ...byte) value { return value{Kind: kind, Bytes: hex.EncodeToString(b)} }
func text(s string) value              { return raw("S", []byte(s)...) }
func table(t map[string]value) value   { return value{Kind: "F", Table: t} }
func array(a ...value) value           { return value{Kind: "A", Array: a} }

func (v value) text() string {
	b, err := hex.DecodeString(v.Bytes)
	if err != nil || v.Kind != "S" {
		return "(no text)"
	}
	return string(b)
}

type (
	headers map[string]value
	props   map[string]any
)

// wire is a message as pika publishes and reads it.
type wire struct {
	Exchange string  `json:"exchange"`
	Key      string  `json:"key"`
	Props    props   `json:"props,omitempty"`
	Headers  headers `json:"headers"`
	Body     []byte  `json:"body"`
}

// peer is a pika client.
type peer struct{ *fidelity.Peer[wire] }

// newPeer starts pika. It also finds Debian's package from another python.
func newPeer(t *testing.T, url string) *peer {
	t.Helper()
	var why error
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		p, err := fidelity.StartPeer[wire](t, python, url)
		if err == nil {
			return &peer{p}
		}
		why = err
	}
	t.Fatalf("this test needs pika, the Python client of RabbitMQ: apt-get install python3-pika, or pip install pika: %v", why)
	return nil
}

type publishing struct {
	Op string `json:"op"`
	wire
}

// put publishes and waits for the confirms.
func (p *peer) put(t *testing.T, msgs ...wire) {
	t.Helper()
	for _, m := range msgs {
		if _, err := p.Do(publishing{"publish", m}); err != nil {
			t.Fatalf("pika: publishing %.40q: %v", m.Body, err)
		}
	}
}

// call publishes with the direct reply-to and returns the reply.
func (p *peer) call(t *testing.T, m wire) []byte {
	t.Helper()
	a, err := p.Do(publishing{"call", m})
	if err != nil {
		t.Fatalf("pika: calling: %v", err)
	}
	return a.Messages[0].Body
}
