package kafkatest

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// line is how a process reaches the broker. Cut, it stays cut.
type line struct {
	name  string // the process is known to the broker by it
	guard *guard
	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func newLine(g *guard) *line { return &line{name: "process-" + rand.Text(), guard: g} }

var errKilled = errors.New("the process was killed")

// Dial implements the dialer of sarama's Net.Proxy.
func (l *line) Dial(network, addr string) (net.Conn, error) {
	if l.isDead() {
		return nil, errKilled
	}
	conn, err := net.Dial(network, addr) //nolint:noctx // the interface has none; the broker is on this machine
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		conn.Close()
		return nil, errKilled
	}
	l.conns = append(l.conns, conn)
	return wire{conn, l.guard}, nil
}

func (l *line) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.conns {
		c.Close()
	}
}

// guard keeps records from topics: a request that has some for one of them loses
// its connection. A single broker of Kafka 4 has no setting that refuses them: it never asks
// for more in-sync replicas than a topic has.
type guard struct {
	mu       sync.Mutex
	prefixes map[string]bool // of topics' names; no test refuses one twice
}

func (g *guard) refuse(prefix string) (restore func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.prefixes == nil {
		g.prefixes = make(map[string]bool)
	}
	g.prefixes[prefix] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.prefixes, prefix)
	}
}

// refuses reports whether a request is a Produce with one of the topics in it.
func (g *guard) refuses(request []byte) bool {
	const size, produce = 4, 0
	if len(request) < size+2 || binary.BigEndian.Uint16(request[size:]) != produce {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for prefix := range g.prefixes {
		if bytes.Contains(request, []byte(prefix)) {
			return true
		}
	}
	return false
}

// wire is one connection. sarama writes a request with one Write.
type wire struct {
	net.Conn
	guard *guard
}

func (w wire) Write(request []byte) (int, error) {
	if w.guard.refuses(request) {
		w.Conn.Close()
		return 0, errors.New("the connection was lost")
	}
	return w.Conn.Write(request)
}
