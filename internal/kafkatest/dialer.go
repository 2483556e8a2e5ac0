package kafkatest

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// killableDialer dials the broker for one process, until it is cut.
type killableDialer struct {
	name   string // the process's client id
	guard  *produceGuard
	mu     sync.Mutex
	conns  []net.Conn
	killed bool
}

func newKillableDialer(g *produceGuard) *killableDialer {
	return &killableDialer{name: "process-" + rand.Text(), guard: g}
}

var errKilled = errors.New("the process was killed")

// Dial implements the dialer of sarama's Net.Proxy.
func (l *killableDialer) Dial(network, addr string) (net.Conn, error) {
	if l.isKilled() {
		return nil, errKilled
	}
	conn, err := net.Dial(network, addr) //nolint:noctx // the interface has none; the broker is on this machine
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		conn.Close()
		return nil, errKilled
	}
	l.conns = append(l.conns, conn)
	return guardedConn{conn, l.guard}, nil
}

func (l *killableDialer) isKilled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killed
}

func (l *killableDialer) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
	for _, c := range l.conns {
		c.Close()
	}
}

// produceGuard refuses records for topics: a Produce request for one of them loses its connection. A single broker of
// Kafka 4 cannot be made to refuse them itself, because it never requires more in-sync replicas than a topic has.
type produceGuard struct {
	mu       sync.Mutex
	prefixes map[string]bool // of topics' names; no test refuses one twice
}

func (g *produceGuard) refuse(prefix string) (restore func()) {
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

// refuses reports whether a request is a Produce for one of the topics.
func (g *produceGuard) refuses(request []byte) bool {
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

// guardedConn is one connection. Clients write a request in one Write.
type guardedConn struct {
	net.Conn
	guard *produceGuard
}

func (w guardedConn) Write(request []byte) (int, error) {
	if w.guard.refuses(request) {
		w.Conn.Close()
		return 0, errors.New("the connection was lost")
	}
	return w.Conn.Write(request)
}
