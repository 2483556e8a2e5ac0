//go:build prove

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// gate is a proxy in front of one listener of a broker.
type gate struct {
	proxy *toxiproxy.Proxy
	made  atomic.Int64 // number of toxics, for their names
}

func newGate(t *testing.T, name, to string) *gate {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // otherwise toxics write to the log
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, name, "127.0.0.1:0", to)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return &gate{proxy: p}
}

func (g *gate) address() string { return g.proxy.Listen }

// The directions of a stream, as seen from a client.
const (
	up   = "upstream"   // requests
	down = "downstream" // answers
)

// add adds a toxic and returns a function that removes it.
func (g *gate) add(kind, stream string, attributes map[string]any) (func(context.Context) error, error) {
	name := fmt.Sprintf("%s-%d", kind, g.made.Add(1))
	text, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return nil, err
	}
	if _, err := g.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("adding %s to %s: %w", kind, g.proxy.Name, err)
	}
	return func(ctx context.Context) error { return g.proxy.Toxics.RemoveToxic(ctx, name) }, nil
}

// toxic is a fault of a connection. size is its severity, from 0 to 99.
type toxic struct {
	name    string
	streams []string
	kind    string
	at      func(size int) map[string]any
}

// toxics are the faults that connections to any broker can have.
var toxics = []toxic{
	// A partition: nothing passes, and the connections stay open. Bytes under way are lost when it heals.
	{"partition", []string{up, down}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	// Half-open: the broker receives but its answers are lost, or the other way round.
	{"answers lost", []string{down}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	{"requests lost", []string{up}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	// A partition after which all bytes under way arrive, late.
	{"standstill", []string{up, down}, "bandwidth", func(int) map[string]any { return map[string]any{"rate": 0} }},
	{"latency", []string{up, down}, "latency", func(size int) map[string]any {
		return map[string]any{"latency": 20 + 8*size, "jitter": 4 * size}
	}},
	{"slow", []string{down}, "bandwidth", func(size int) map[string]any { return map[string]any{"rate": 4 + size} }},
	{"sliced", []string{up, down}, "slicer", func(size int) map[string]any {
		return map[string]any{"average_size": 20 + size, "size_variation": 10, "delay": 200}
	}},
	// Each connection breaks in the middle of an answer.
	{"torn", []string{down}, "limit_data", func(size int) map[string]any { return map[string]any{"bytes": 500 + 400*size} }},
	{"reset", []string{down}, "reset_peer", func(size int) map[string]any { return map[string]any{"timeout": 10 * size} }},
}

// fault returns a kind of fault that adds the toxic to the gates of one random target.
func (x toxic) fault(targets int, gates func(target int) []*gate) kind {
	return kind{name: x.name, targets: targets, begin: func(_ context.Context, s step) (func(context.Context) error, error) {
		var heal []func(context.Context) error
		undo := func(ctx context.Context) error { return all(ctx, heal) }
		for _, g := range gates(s.target) {
			for _, stream := range x.streams {
				remove, err := g.add(x.kind, stream, x.at(s.size))
				if err != nil {
					return undo, err
				}
				heal = append(heal, remove)
			}
		}
		return undo, nil
	}}
}
