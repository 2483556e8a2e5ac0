//go:build prove

// Package boto_test uses boto3 as an independent client to compare what was sent with what the handler sees at every
// attempt and what is in the DLQ.
package boto_test

import (
	"encoding/hex"
	"maps"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// attribute is a message attribute as boto3 sends and receives it.
type attribute struct {
	Type  string `json:"t"`
	Value string `json:"v"` // hex digits if it is binary
}

func str(s string) attribute              { return attribute{"String", s} }
func number(s string) attribute           { return attribute{"Number", s} }
func binary(b ...byte) attribute          { return attribute{"Binary", hex.EncodeToString(b)} }
func (a attribute) as(t string) attribute { return attribute{a.Type + "." + t, a.Value} }

type attributes map[string]attribute

// wire is a message as boto3 sends and receives it.
type wire struct {
	ID         string     `json:"id,omitempty"`
	Body       string     `json:"body"`
	Attributes attributes `json:"attributes"`
	Group      string     `json:"group,omitempty"`
	Dedup      string     `json:"dedup,omitempty"`
	Trace      string     `json:"trace,omitempty"`
	Received   int        `json:"received,omitempty"` // ApproximateReceiveCount
}

// peer is a boto3 client.
type peer struct{ *fidelity.Peer[wire] }

func newPeer(t *testing.T, url string) *peer {
	t.Helper()
	p, err := fidelity.StartPeer[wire](t, brokers.RequirePython(t), url)
	if err != nil {
		t.Fatalf("boto3 did not start: %v", err)
	}
	return &peer{p}
}

// create creates a queue, a FIFO queue if its name says so.
func (p *peer) create(t *testing.T, queue string, settings map[string]string) {
	t.Helper()
	all := map[string]string{}
	maps.Copy(all, settings)
	if strings.HasSuffix(queue, ".fifo") {
		all["FifoQueue"] = "true"
	}
	if _, err := p.Do(map[string]any{"op": "create", "queue": queue, "attributes": all}); err != nil {
		t.Fatalf("boto3: creating %s: %v", queue, err)
	}
}

// put sends messages and records their ids.
func (p *peer) put(t *testing.T, queue string, msgs ...wire) []wire {
	t.Helper()
	sent := make([]wire, len(msgs))
	for i, m := range msgs {
		a, err := p.Do(map[string]any{"op": "send", "queue": queue, "message": m})
		if err != nil {
			t.Fatalf("boto3: sending %.40q: %v", m.Body, err)
		}
		m.ID = a.ID
		sent[i] = m
	}
	return sent
}

// settings returns the attributes of a queue.
func (p *peer) settings(t *testing.T, queue string) map[string]string {
	t.Helper()
	a, err := p.Do(map[string]any{"op": "attributes", "queue": queue})
	if err != nil {
		t.Fatalf("boto3: asking for %s: %v", queue, err)
	}
	return a.Attributes
}
