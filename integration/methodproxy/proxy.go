// Package methodproxy is a proxy between a client of RabbitMQ and its broker. It knows the requests of the client, and makes
// them fail as RabbitMQ or a network does.
package methodproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Operation is a request of AMQP, and the queue or exchange that it is about, if it is about one.
type Operation struct{ Method, Place string }

func (o Operation) String() string { return o.Method + " on " + o.Place }

// Operations on the default exchange, and the method of a passive declaration.
const (
	DefaultExchange = "amq.default"
	PassiveDeclare  = "queue.declare, passive," //nolint:gosec // no password
)

// Right returns what RabbitMQ must allow for the operation, as rabbitmqctl set_permissions has it, or "" if it needs no
// right. RabbitMQ 4.3 requires a right for a passive declaration, too.
func (o Operation) Right() string {
	switch o.Method {
	case "basic.consume", "basic.get", "queue.purge":
		return "read"
	case "basic.publish", "queue.bind":
		return "write"
	case "exchange.declare", "queue.declare", PassiveDeclare, "queue.delete":
		return "configure"
	default:
		return ""
	}
}

// Fault is what happens to a request.
type Fault struct {
	// Err ends the channel with an error, or the connection if Connection is set. The broker does not get the request.
	Err        *amqp091.Error
	Connection bool
	// Lost passes the request on. When the broker answers it, the connection ends and the client gets no answer.
	Lost bool
}

// Proxy is between a client and its broker.
type Proxy struct {
	to     *url.URL
	listen net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	used   map[Operation]int
	rules  []*rule
	conns  map[*conn]bool
	gates  [2]gate
	closed bool
}

// The directions.
const (
	requests = iota
	answers
)

// rule is a fault of requests.
type rule struct {
	fault func(o Operation, request []byte) *Fault
}

// gate holds the frames of one direction while it is shut.
type gate struct {
	shut int           // how often
	open chan struct{} // closed when it opens
}

// New starts a proxy of a broker's URL.
func New(to string) (*Proxy, error) {
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	listen, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{to: u, listen: listen, used: make(map[Operation]int), conns: make(map[*conn]bool)}
	p.all.Go(p.accept)
	return p, nil
}

// URL returns the broker's URL with the proxy's address.
func (p *Proxy) URL() string {
	u := *p.to
	u.Host = p.listen.Addr().String()
	return u.String()
}

// Close ends all connections, and refuses new ones.
func (p *Proxy) Close() {
	_ = p.listen.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.all.Wait()
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range all {
		c.end()
	}
}

// Stall stops the network in both directions until the returned function is called. Connections stay open, and new ones
// get no answer.
func (p *Proxy) Stall() (end func()) {
	first, second := p.hold(requests), p.hold(answers)
	return func() { first(); second() }
}

// Delay stops the answers of the broker until the returned function is called.
func (p *Proxy) Delay() (end func()) { return p.hold(answers) }

func (p *Proxy) hold(direction int) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.gates[direction]
	if g.shut++; g.shut == 1 {
		g.open = make(chan struct{})
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if g.shut--; g.shut == 0 {
			close(g.open)
		}
	}
}

// Block blocks the connections that have published, as a broker does that has no memory or disk left, until the returned
// function is called.
func (p *Proxy) Block() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*conn
	for c := range p.conns {
		if c.published.Load() {
			all = append(all, c)
		}
	}
	opened := make(chan struct{})
	for _, c := range all {
		c.block(opened)
	}
	return func() { close(opened) }
}

// Inject lets requests fail for which fault returns one, until stop is called.
func (p *Proxy) Inject(fault func(o Operation, request []byte) *Fault) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &rule{fault}
	p.rules = append(p.rules, r)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(slices.Clone(p.rules), func(other *rule) bool { return other == r })
	}
}

// Deny denies an operation until the returned function is called.
func (p *Proxy) Deny(o Operation, code int, reason string) (allow func()) {
	f := &Fault{Err: &amqp091.Error{Code: code, Reason: reason}}
	return p.Inject(func(other Operation, _ []byte) *Fault {
		if other != o {
			return nil
		}
		return f
	})
}

// DenyRight denies an operation with RabbitMQ's answer to a user without the right.
func (p *Proxy) DenyRight(o Operation) (allow func()) {
	kind := "queue"
	if o.Method == "basic.publish" || o.Method == "exchange.declare" {
		kind = "exchange"
	}
	return p.Deny(o, amqp091.AccessRefused, fmt.Sprintf("ACCESS_REFUSED - access to %s '%s' in vhost '/' refused for user 'guest'", kind, o.Place))
}

// RefuseArgument refuses each declaration of a queue with an argument, as a broker does that does not know the argument.
func (p *Proxy) RefuseArgument(queue, argument string) {
	f := &Fault{Err: &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: fmt.Sprintf("PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/': unknown", argument, queue)}}
	p.Inject(func(o Operation, request []byte) *Fault {
		if o != (Operation{"queue.declare", queue}) || !bytes.Contains(request, []byte(argument)) {
			return nil
		}
		return f
	})
}

// Operations returns the operations that need a right, since its last call.
func (p *Proxy) Operations() map[Operation]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := maps.Clone(p.used)
	clear(p.used)
	return used
}

// fault records an operation, and returns its fault.
func (p *Proxy) fault(o Operation, request []byte) *Fault {
	p.mu.Lock()
	if o.Right() != "" {
		p.used[o]++
	}
	rules := p.rules
	p.mu.Unlock()
	for _, r := range rules {
		if f := r.fault(o, request); f != nil {
			return f
		}
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		broker, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(context.Background(), "tcp", p.to.Host)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &conn{
			proxy: p, client: client, broker: broker, refused: make(map[uint16]*refusedChannel), lost: make(map[uint16]bool),
			ended: make(chan struct{}),
		}
		p.mu.Lock()
		closed := p.closed
		p.conns[c] = true
		p.mu.Unlock()
		if closed {
			c.end()
		}
		p.all.Go(func() { c.pass(c.passRequests) })
		p.all.Go(func() { c.pass(c.passAnswers) })
	}
}

// conn is one connection of a client.
type conn struct {
	proxy          *Proxy
	client, broker net.Conn
	published      atomic.Bool
	ended          chan struct{}
	once           sync.Once

	mu      sync.Mutex // held while a frame is written
	refused map[uint16]*refusedChannel
	lost    map[uint16]bool // channels whose next answer is lost
	blocked <-chan struct{} // closed when it is no more blocked
}

// refusedChannel is a channel that the proxy ends. It first closes the channel of the broker, so that the client can use
// its number again. Until the client has answered, its frames are dropped.
type refusedChannel struct {
	err           *amqp091.Error
	class, method uint16
}

func (c *conn) pass(frames func() error) {
	_ = frames()
	c.end()
}

func (c *conn) end() {
	c.once.Do(func() { close(c.ended) })
	_ = c.client.Close()
	_ = c.broker.Close()
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	delete(c.proxy.conns, c)
}

// await waits while the network stands still in a direction.
func (c *conn) await(direction int) {
	for {
		c.proxy.mu.Lock()
		g := c.proxy.gates[direction]
		c.proxy.mu.Unlock()
		if g.shut == 0 {
			return
		}
		select {
		case <-g.open:
		case <-c.ended:
			return
		}
	}
}

// block tells the client that the broker takes no messages, until opened is closed.
func (c *conn) block(opened <-chan struct{}) {
	c.proxy.all.Go(func() {
		c.mu.Lock()
		c.blocked = opened
		reason := "low on memory"
		_ = (&frame{1, 0, slices.Concat([]byte{0, 10, 0, 60, byte(len(reason))}, []byte(reason), []byte{frameEnd})}).write(c.client)
		c.mu.Unlock()
		select {
		case <-opened:
		case <-c.ended:
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.blocked == opened {
			c.blocked = nil
		}
		_ = (&frame{1, 0, []byte{0, 10, 0, 61, frameEnd}}).write(c.client)
	})
}

// awaitUnblocked waits while the broker reads nothing of the connection. A broker that does so does not miss heartbeats.
func (c *conn) awaitUnblocked() {
	for {
		c.mu.Lock()
		blocked := c.blocked
		c.mu.Unlock()
		if blocked == nil {
			return
		}
		select {
		case <-blocked:
			return
		case <-c.ended:
			return
		case <-time.After(500 * time.Millisecond):
			_ = (&frame{8, 0, []byte{frameEnd}}).write(c.broker)
		}
	}
}

const (
	replySuccess = 200  // the code with which a client closes a channel
	frameEnd     = 0xCE // the last byte of each frame
)

// frame is a frame of AMQP.
type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

// is reports whether the frame is a method.
func (f *frame) is(class, method uint16) bool {
	return f.kind == 1 && binary.BigEndian.Uint16(f.payload) == class && binary.BigEndian.Uint16(f.payload[2:]) == method
}

func readFrame(in io.Reader) (*frame, error) {
	var head [7]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	f := &frame{kind: head[0], channel: binary.BigEndian.Uint16(head[1:]), payload: make([]byte, binary.BigEndian.Uint32(head[3:])+1)}
	_, err := io.ReadFull(in, f.payload)
	return f, err
}

func (f *frame) write(to io.Writer) error {
	b := binary.BigEndian.AppendUint16([]byte{f.kind}, f.channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.payload)-1))
	_, err := to.Write(append(b, f.payload...))
	return err
}

// closing returns the method that closes a channel or a connection with an error.
func closing(channel, class, method uint16, r *refusedChannel) *frame {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), method)
	b = binary.BigEndian.AppendUint16(b, uint16(r.err.Code))
	b = append(append(b, byte(len(r.err.Reason))), r.err.Reason...)
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, r.class), r.method)
	return &frame{1, channel, append(b, frameEnd)}
}

// passRequests passes on what the client sends.
func (c *conn) passRequests() error {
	in := bufio.NewReader(c.client)
	if _, err := io.CopyN(c.broker, in, 8); err != nil { // "AMQP" and the version
		return err
	}
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		c.await(requests)
		c.awaitUnblocked()
		if err := c.passRequest(f); err != nil {
			return err
		}
	}
}

func (c *conn) passRequest(f *frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.refused[f.channel]; r != nil {
		if f.is(20, 41) { // the client has closed the channel, too
			delete(c.refused, f.channel)
		}
		return nil
	}
	if o, ok := decodeOperation(f); ok {
		if o.Method == "basic.publish" {
			c.published.Store(true)
		}
		switch fault := c.proxy.fault(o, f.payload); {
		case fault == nil:
		case fault.Lost:
			c.lost[f.channel] = true
		default:
			r := &refusedChannel{fault.Err, binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:])}
			if fault.Connection {
				return closing(0, 10, 50, r).write(c.client)
			}
			c.refused[f.channel] = r
			return closing(f.channel, 20, 40, &refusedChannel{err: &amqp091.Error{Code: replySuccess}}).write(c.broker)
		}
	}
	return f.write(c.broker)
}

// passAnswers passes on what the broker sends.
func (c *conn) passAnswers() error {
	in := bufio.NewReader(c.broker)
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		c.await(answers)
		c.mu.Lock()
		switch r := c.refused[f.channel]; {
		case c.lost[f.channel] && f.isAnswer():
			err = errLost
		case r == nil || f.channel == 0:
			err = f.write(c.client)
		case f.is(20, 41): // the broker has closed its channel
			err = closing(f.channel, 20, 40, r).write(c.client)
		}
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// errLost ends a connection whose client must not get an answer.
var errLost = errors.New("the answer is lost")

// isAnswer reports whether the frame may be the answer to a request: a method that is no delivery.
func (f *frame) isAnswer() bool { return f.kind == 1 && !f.is(60, 60) }

// decodeOperation returns the operation of a frame, if it is one that may fail.
func decodeOperation(f *frame) (o Operation, ok bool) {
	if f.kind != 1 {
		return o, false
	}
	text := f.payload[4:]
	short := func() string {
		n := int(text[0])
		s := string(text[1 : 1+n])
		text = text[1+n:]
		return s
	}
	method := map[[2]uint16]string{
		{20, 10}: "channel.open", {40, 10}: "exchange.declare", {50, 10}: "queue.declare", {50, 20}: "queue.bind", {50, 30}: "queue.purge",
		{50, 40}: "queue.delete", {60, 10}: "basic.qos", {60, 20}: "basic.consume", {60, 30}: "basic.cancel", {60, 40}: "basic.publish",
		{60, 70}: "basic.get", {60, 80}: "basic.ack", {60, 120}: "basic.nack", {85, 10}: "confirm.select",
	}[[2]uint16{binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:])}]
	if method == "" {
		return o, false
	}
	if o.Method = method; o.Right() == "" {
		return o, true
	}
	text = text[2:] // the ticket
	o.Place = short()
	switch method {
	case "queue.declare":
		if text[0]&1 != 0 {
			o.Method = PassiveDeclare
		}
	case "exchange.declare":
		short() // the type
		if text[0]&1 != 0 {
			return o, false // RabbitMQ checks no right
		}
	case "basic.publish":
		if o.Place == "" {
			o.Place = DefaultExchange
		}
	}
	return o, true
}
