package amqp_test

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// cuttableDialer makes connections, cuts them for good, or cuts one on which something is published to a queue that takes nothing.
type cuttableDialer struct {
	refused *sync.Map

	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func (l *cuttableDialer) dial(network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return nil, errors.New("the process was killed")
	}
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	l.conns = append(l.conns, c)
	return &conn{Conn: c, line: l}, nil
}

func (l *cuttableDialer) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// drop closes the connections; new ones may be made.
func (l *cuttableDialer) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// conn reads what it writes. The client calls Write under a lock of its own.
type conn struct {
	net.Conn
	line *cuttableDialer
	tail []byte
}

// publish begins a basic.publish to the default exchange; the queue's name follows, its length before it.
var publish = []byte{0, 60, 0, 40, 0, 0, 0}

const longest = len("\x00\x3c\x00\x28\x00\x00\x00\xff") + 255

func (c *conn) Write(b []byte) (int, error) {
	text := slices.Concat(c.tail, b)
	refused := false
	c.line.refused.Range(func(queue, _ any) bool {
		for rest := text; !refused; {
			_, after, found := bytes.Cut(rest, publish)
			if !found || len(after) == 0 {
				break
			}
			refused = bytes.HasPrefix(after[1:], []byte(queue.(string)))
			rest = after
		}
		return !refused
	})
	if refused {
		_ = c.Close()
		return 0, errors.New("the broker takes nothing there")
	}
	c.tail = text[max(0, len(text)-longest):]
	return c.Conn.Write(b)
}
