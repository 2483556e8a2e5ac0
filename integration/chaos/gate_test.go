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

// gate is a proxy before one listener of a broker.
type gate struct {
	proxy *toxiproxy.Proxy
	made  atomic.Int64 // toxics, for their names
}

func newGate(t *testing.T, name, to string) *gate {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxics log by themselves
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

// poison adds a toxic and returns what removes it.
func (g *gate) poison(kind, stream string, attributes map[string]any) (func(context.Context) error, error) {
	name := fmt.Sprintf("%s-%d", kind, g.made.Add(1))
	text, err := json.Marshal(map[string]any{"name": name, "type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return nil, err
	}
	if _, err := g.proxy.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
		return nil, fmt.Errorf("putting %s into %s: %w", kind, g.proxy.Name, err)
	}
	return func(ctx context.Context) error { return g.proxy.Toxics.RemoveToxic(ctx, name) }, nil
}

// toxic is a fault of a connection. size, from 0 to 99, says how bad it is.
type toxic struct {
	name    string
	streams []string
	kind    string
	at      func(size int) map[string]any
}

// toxics are all that can happen to connections, whatever the broker.
var toxics = []toxic{
	// Nothing passes, and the connections stay: a partition. Bytes that were under way are lost when it heals.
	{"partition", []string{up, down}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	// Half-open: the broker hears and is not heard, or the other way round.
	{"answers lost", []string{down}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	{"requests lost", []string{up}, "timeout", func(int) map[string]any { return map[string]any{"timeout": 0} }},
	// A partition after which all that was under way arrives, late.
	{"standstill", []string{up, down}, "bandwidth", func(int) map[string]any { return map[string]any{"rate": 0} }},
	{"latency", []string{up, down}, "latency", func(size int) map[string]any {
		return map[string]any{"latency": 20 + 8*size, "jitter": 4 * size}
	}},
	{"slow", []string{down}, "bandwidth", func(size int) map[string]any { return map[string]any{"rate": 4 + size} }},
	{"sliced", []string{up, down}, "slicer", func(size int) map[string]any {
		return map[string]any{"average_size": 20 + size, "size_variation": 10, "delay": 200}
	}},
	// Each connection breaks in the midst of an answer.
	{"torn", []string{down}, "limit_data", func(size int) map[string]any { return map[string]any{"bytes": 500 + 400*size} }},
	{"reset", []string{down}, "reset_peer", func(size int) map[string]any { return map[string]any{"timeout": 10 * size} }},
}

// fault is a toxic as a kind of fault, at those gates of which one of targets is drawn.
func (x toxic) fault(targets int, gates func(target int) []*gate) kind {
	return kind{name: x.name, targets: targets, begin: func(_ context.Context, s step) (func(context.Context) error, error) {
		var heal []func(context.Context) error
		undo := func(ctx context.Context) error { return all(ctx, heal) }
		for _, g := range gates(s.target) {
			for _, stream := range x.streams {
				remove, err := g.poison(x.kind, stream, x.at(s.size))
				if err != nil {
					return undo, err
				}
				heal = append(heal, remove)
			}
		}
		return undo, nil
	}}
}
