package kafkaworld

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// network connects clients and brokers in one process. Writes never wait for a reader: sarama writes while it holds a lock,
// and a goroutine that waits for a lock stops a bubble's time.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
}

type listener struct {
	address string
	accept  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Listen is for kfake.ListenFn.
func (n *network) Listen(_, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners = make(map[string]*listener)
	}
	l := &listener{address: loopback(address), accept: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[l.address] = l
	return l, nil
}

func loopback(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return "127.0.0.1:" + port
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return tcpAddress(l.address) }

type tcpAddress string

func (a tcpAddress) Network() string { return "tcp" }
func (a tcpAddress) String() string  { return string(a) }

var errRefused = errors.New("connection refused")

// DialContext is for clients outside the services.
func (n *network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[loopback(address)]
	n.mu.Unlock()
	if l == nil {
		return nil, errRefused
	}
	there, back := newStream(), newStream()
	select {
	case l.accept <- &conn{in: there, out: back, local: l.address, remote: "127.0.0.1:1"}:
		return &conn{in: back, out: there, local: "127.0.0.1:1", remote: l.address}, nil
	case <-l.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// stream is one direction of a connection, with a buffer without a bound.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond
	data     []byte
	closed   bool
	deadline time.Time
	timer    *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.data = append(s.data, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			return n, nil
		case s.closed:
			return 0, io.EOF
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
}

func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.changed.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if !t.IsZero() && !s.closed {
		s.timer = time.AfterFunc(time.Until(t), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
}

type conn struct {
	in, out       *stream
	local, remote string
}

func (c *conn) Read(p []byte) (int, error)        { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error)       { return c.out.write(p) }
func (c *conn) LocalAddr() net.Addr               { return tcpAddress(c.local) }
func (c *conn) RemoteAddr() net.Addr              { return tcpAddress(c.remote) }
func (c *conn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }
func (c *conn) SetWriteDeadline(time.Time) error  { return nil }
func (c *conn) SetDeadline(t time.Time) error     { return c.SetReadDeadline(t) }
func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}

// traceFrame gets each request and response, if it is set.
var traceFrame func(string)

// machine is the network of one process.
type machine struct {
	network *network
	name    string

	mu      sync.Mutex
	conns   map[*machineConn]bool
	dead    bool
	stalled time.Time             // nothing is sent before
	lost    map[int16]int         // the answers of so many requests get lost
	sent    map[int16][]time.Time // requests, while a word counts them
	counts  int                   // how many words do
}

func newMachine(n *network, name string) *machine {
	return &machine{network: n, name: name, conns: make(map[*machineConn]bool), lost: make(map[int16]int), sent: make(map[int16][]time.Time)}
}

var errKilled = errors.New("the process was killed")

// Dial implements the dialer of sarama's Net.Proxy.
func (m *machine) Dial(network, address string) (net.Conn, error) {
	return m.DialContext(context.Background(), network, address)
}

func (m *machine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !m.await() {
		return nil, errKilled
	}
	c, err := m.network.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	mc := &machineConn{Conn: c, machine: m}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		c.Close()
		return nil, errKilled
	}
	m.conns[mc] = true
	return mc, nil
}

// await waits while the network stands still. It reports whether the process lives.
func (m *machine) await() bool {
	for {
		m.mu.Lock()
		dead, rest := m.dead, time.Until(m.stalled)
		m.mu.Unlock()
		if dead || rest <= 0 {
			return !dead
		}
		time.Sleep(rest)
	}
}

// cut closes all connections, and if it kills, forever.
func (m *machine) cut(kills bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = m.dead || kills
	for c := range m.conns {
		c.Conn.Close()
		delete(m.conns, c)
	}
}

func (m *machine) stall(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stalled = time.Now().Add(d)
}

// loseAnswers makes the next requests with a key lose their answers, and their connections.
func (m *machine) loseAnswers(key int16, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost[key] = n
}

// note notes a request, if a word counts them.
func (m *machine) note(p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts > 0 && len(p) >= 6 {
		key := int16(binary.BigEndian.Uint16(p[4:]))
		m.sent[key] = append(m.sent[key], time.Now())
	}
}

// sentSince returns how many requests with a key were sent since a moment, and when the first was.
func (m *machine) sentSince(key int16, from time.Time) (n int, first time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.sent[key] {
		if !at.Before(from) {
			if n++; n == 1 {
				first = at
			}
		}
	}
	return n, first
}

// count begins or ends a word that counts requests.
func (m *machine) count(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts += by; m.counts == 0 {
		clear(m.sent)
	}
}

type machineConn struct {
	net.Conn
	machine  *machine
	deadline time.Time
}

func (c *machineConn) Close() error {
	c.machine.mu.Lock()
	delete(c.machine.conns, c)
	c.machine.mu.Unlock()
	return c.Conn.Close()
}

func (c *machineConn) Write(p []byte) (int, error) {
	if !c.machine.await() {
		return 0, errKilled
	}
	n, err := c.Conn.Write(p)
	c.machine.note(p)
	if traceFrame != nil && len(p) >= 12 {
		traceFrame(fmt.Sprintf("%s > key %d #%d on %p to %s", c.machine.name, binary.BigEndian.Uint16(p[4:]), binary.BigEndian.Uint32(p[8:]), c, c.RemoteAddr()))
	}
	if len(p) >= 6 && c.machine.loses(int16(binary.BigEndian.Uint16(p[4:]))) {
		time.AfterFunc(10*time.Millisecond, func() { c.Conn.Close() }) // the broker has carried it out by then
	}
	return n, err
}

// Read delivers nothing while the network stands still, and then ends at its deadline as on a real network.
func (c *machineConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	if traceFrame != nil && n == 8 {
		traceFrame(fmt.Sprintf("%s < #%d on %p", c.machine.name, binary.BigEndian.Uint32(p[4:]), c))
	}
	for {
		c.machine.mu.Lock()
		dead, deadline, until := c.machine.dead, c.deadline, c.machine.stalled
		c.machine.mu.Unlock()
		now := time.Now()
		switch {
		case dead:
			return 0, errKilled
		case !now.Before(until):
			return n, nil
		case !deadline.IsZero() && deadline.Before(until):
			time.Sleep(time.Until(deadline))
			return 0, os.ErrDeadlineExceeded
		}
		time.Sleep(time.Until(until))
	}
}

func (c *machineConn) SetReadDeadline(t time.Time) error {
	c.machine.mu.Lock()
	c.deadline = t
	c.machine.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

func (c *machineConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (m *machine) loses(key int16) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost[key] == 0 {
		return false
	}
	m.lost[key]--
	return true
}
