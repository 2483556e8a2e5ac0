package amqp_test

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// cuttableDialer makes connections and can cut them for good. It also cuts a connection that publishes to a refused
// queue.
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

// drop closes the connections; new ones can be made.
func (l *cuttableDialer) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// conn reads the data that it writes. The client calls Write under a lock.
type conn struct {
	net.Conn
	line *cuttableDialer
	tail []byte
}

// publish is the start of a basic.publish to the default exchange, before the length and the name of the queue.
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
		return 0, errors.New("the broker accepts no message there")
	}
	c.tail = text[max(0, len(text)-longest):]
	return c.Conn.Write(b)
}
