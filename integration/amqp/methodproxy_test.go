package amqp_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// operation is a request of AMQP, and the queue or exchange that it is about.
type operation struct{ method, place string }

func (o operation) String() string { return o.method + " on " + o.place }

// Operations on the default exchange, and the method of a passive declaration.
const (
	defaultExchange = "amq.default"
	passiveDeclare  = "queue.declare, passive,"
)

// right returns what RabbitMQ must allow for the operation, as rabbitmqctl set_permissions has it. RabbitMQ 4.3 requires
// a right for a passive declaration, too.
func (o operation) right() string {
	switch o.method {
	case "basic.consume", "basic.get", "queue.purge":
		return "read"
	case "basic.publish", "queue.bind":
		return "write"
	default:
		return "configure"
	}
}

// methodProxy is between a client and its broker, and knows the operations of the client. It can deny them as RabbitMQ
// does: with an error that ends the channel.
type methodProxy struct {
	to     *url.URL
	listen net.Listener
	// denyConnection ends the whole connection with an error, instead of the channel.
	denyConnection bool

	mu     sync.Mutex
	used   map[operation]int
	denied map[operation]*amqp091.Error
	// unknownArgument of unknownIn is refused in declarations.
	unknownArgument, unknownIn string
	conns                      map[net.Conn]bool
}

func newMethodProxy(t *testing.T, to string) *methodProxy {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &methodProxy{
		to: u, listen: listen, used: make(map[operation]int), denied: make(map[operation]*amqp091.Error), conns: make(map[net.Conn]bool),
	}
	var all sync.WaitGroup
	all.Go(func() { p.accept(&all) })
	t.Cleanup(func() {
		_ = listen.Close()
		p.cut()
		all.Wait()
	})
	return p
}

// url returns the broker's URL with the proxy's address.
func (p *methodProxy) url() string {
	u := *p.to
	u.Host = p.listen.Addr().String()
	return u.String()
}

// cut ends all connections.
func (p *methodProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// deny denies an operation until the returned function is called.
func (p *methodProxy) deny(o operation, code int, reason string) (allow func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied[o] = &amqp091.Error{Code: code, Reason: reason}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.denied, o)
	}
}

// denyRight denies an operation with RabbitMQ's answer to a user without the right.
func (p *methodProxy) denyRight(o operation) (allow func()) {
	kind := "queue"
	if o.method == "basic.publish" || o.method == "exchange.declare" {
		kind = "exchange"
	}
	return p.deny(o, amqp091.AccessRefused, fmt.Sprintf("ACCESS_REFUSED - access to %s '%s' in vhost '/' refused for user 'guest'", kind, o.place))
}

// operations returns the operations since its last call.
func (p *methodProxy) operations() map[operation]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	used := maps.Clone(p.used)
	clear(p.used)
	return used
}

// refuseArgument refuses each declaration of a queue with an argument, as a broker does that does not know the argument.
func (p *methodProxy) refuseArgument(queue, argument string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unknownIn, p.unknownArgument = queue, argument
}

// refusal records an operation, and returns the error if it is denied.
func (p *methodProxy) refusal(o operation, request []byte) *amqp091.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[o]++
	if o.method == "queue.declare" && o.place == p.unknownIn && bytes.Contains(request, []byte(p.unknownArgument)) {
		return &amqp091.Error{Code: amqp091.PreconditionFailed, Reason: fmt.Sprintf("PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/': unknown", p.unknownArgument, o.place)}
	}
	return p.denied[o]
}

func (p *methodProxy) accept(all *sync.WaitGroup) {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		broker, err := net.DialTimeout("tcp", p.to.Host, 10*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[broker] = true, true
		p.mu.Unlock()
		c := &methodConn{proxy: p, client: client, broker: broker, refused: make(map[uint16]*refusedChannel)}
		all.Go(func() { c.end(c.passRequests()) })
		all.Go(func() { c.end(c.passAnswers()) })
	}
}

// methodConn is one connection of a client.
type methodConn struct {
	proxy          *methodProxy
	client, broker net.Conn

	mu      sync.Mutex // held while a frame is written
	refused map[uint16]*refusedChannel
}

// refusedChannel is a channel that the proxy ends. It first closes the channel of the broker, so that the client can use
// its number again. Until the client has answered, its frames are dropped.
type refusedChannel struct {
	err           *amqp091.Error
	class, method uint16
}

func (c *methodConn) end(error) {
	_ = c.client.Close()
	_ = c.broker.Close()
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	delete(c.proxy.conns, c.client)
	delete(c.proxy.conns, c.broker)
}

// replySuccess is the code with which a client closes a channel.
const replySuccess = 200

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
	return &frame{1, channel, append(b, 0xCE)}
}

// passRequests passes on what the client sends.
func (c *methodConn) passRequests() error {
	in := bufio.NewReader(c.client)
	if _, err := io.CopyN(c.broker, in, 8); err != nil { // "AMQP" and the version
		return err
	}
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		if err := c.passRequest(f); err != nil {
			return err
		}
	}
}

func (c *methodConn) passRequest(f *frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.refused[f.channel]; r != nil {
		if f.is(20, 41) { // the client has closed the channel, too
			delete(c.refused, f.channel)
		}
		return nil
	}
	if o, ok := decodeOperation(f); ok {
		if refused := c.proxy.refusal(o, f.payload); refused != nil {
			r := &refusedChannel{refused, binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:])}
			if c.proxy.denyConnection {
				return closing(0, 10, 50, r).write(c.client)
			}
			c.refused[f.channel] = r
			return closing(f.channel, 20, 40, &refusedChannel{err: &amqp091.Error{Code: replySuccess}}).write(c.broker)
		}
	}
	return f.write(c.broker)
}

// passAnswers passes on what the broker sends.
func (c *methodConn) passAnswers() error {
	in := bufio.NewReader(c.broker)
	for {
		f, err := readFrame(in)
		if err != nil {
			return err
		}
		c.mu.Lock()
		switch r := c.refused[f.channel]; {
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

// decodeOperation returns the operation of a frame, if it is one for which RabbitMQ checks a right.
func decodeOperation(f *frame) (o operation, ok bool) {
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
		{40, 10}: "exchange.declare", {50, 10}: "queue.declare", {50, 20}: "queue.bind", {50, 30}: "queue.purge", {50, 40}: "queue.delete",
		{60, 20}: "basic.consume", {60, 40}: "basic.publish", {60, 70}: "basic.get",
	}[[2]uint16{binary.BigEndian.Uint16(f.payload), binary.BigEndian.Uint16(f.payload[2:])}]
	if method == "" {
		return o, false
	}
	text = text[2:] // the ticket
	o = operation{method, short()}
	switch method {
	case "queue.declare":
		if text[0]&1 != 0 {
			o.method = passiveDeclare
		}
	case "exchange.declare":
		short() // the type
		if text[0]&1 != 0 {
			return o, false // RabbitMQ checks no right
		}
	case "basic.publish":
		if o.place == "" {
			o.place = defaultExchange
		}
	}
	return o, true
}
