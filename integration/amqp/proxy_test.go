//go:build prove

package amqp_test

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// proxy is between a client and its broker.
type proxy struct {
	to     string
	listen net.Listener
	wrap   func(net.Conn) net.Conn // wraps connections of clients

	mu     sync.Mutex
	conns  []net.Conn
	frozen chan struct{} // closed to stop traffic of the existing connections
}

func newProxy(t *testing.T, to string, wrap func(net.Conn) net.Conn) *proxy {
	t.Helper()
	listen, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listen: listen, wrap: wrap, frozen: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() { p.serve(&all) })
	t.Cleanup(func() {
		_ = listen.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listen.Addr().String() }

func (p *proxy) serve(all *sync.WaitGroup) {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		broker, err := net.DialTimeout("tcp", p.to, 10*time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		if p.wrap != nil {
			client = p.wrap(client)
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, broker)
		frozen := p.frozen
		p.mu.Unlock()
		all.Go(func() { pass(client, broker, frozen) })
		all.Go(func() { pass(broker, client, frozen) })
	}
}

// pass copies until one end closes. Once frozen is closed, it copies nothing and leaves both ends open, as when a host
// or network has failed.
func pass(from, to net.Conn, frozen <-chan struct{}) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-frozen:
			return
		default:
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			_ = from.Close()
			_ = to.Close()
			return
		}
	}
}

// freeze stops all traffic of the existing connections. Later connections work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

// The broker disappears silently while the client publishes more than a socket buffers. The client notices it and
// continues on a new connection, and the lost writes do no harm.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	to, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, to.Host, nil)
	l := newFixture(t, r, func(l *fixture) {
		at := *to
		at.Host = p.address()
		l.cfg.URLs = []string{at.String()}
		l.cfg.AMQP = amqp091.Config{Heartbeat: 2 * time.Second}
		l.cfg.SendTimeout = maxWait
	})
	l.consume(failsOnce)
	l.awaitChange("consuming", 1)
	before := ids(20)
	l.publishMessages(before...)
	l.awaitEnds(before)
	p.freeze()
	msgs := make([]*message.Message, 200)
	for i := range msgs {
		msgs[i] = message.NewMessage("void", make([]byte, 100_000))
	}
	if err := l.client.Publisher().Publish(l.queue, msgs...); err == nil {
		t.Error("publishes of lost messages succeeded")
	}
	l.awaitChange("disconnected", 1)
	l.awaitChange("consuming", 2)
	l.publishMessages("after")
	l.awaitEnds([]string{"after"})
	l.checkNothingEarly()
}
