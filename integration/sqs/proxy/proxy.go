// Package proxy is between an SQS client and a server that speaks SQS. It gives SQS's faulty answers. It refuses requests
// that AWS documents as refused and that the servers of the tests accept. It counts requests, for which users of SQS pay.
package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/redeliver/redeliver/internal/sqsfake"
)

// DefaultLimit is the MaximumMessageSize that this module's adapters assume for a queue that reports none: that of every
// queue until August 2025.
const DefaultLimit = 256 << 10

// Call is one request.
type Call = sqsfake.Call

// Proxy is a proxy for one server. Its methods are safe for concurrent use.
type Proxy struct {
	target string
	url    string
	server *http.Server
	client *http.Client

	mu       sync.Mutex
	rules    []*Active
	limit    int
	violated []string
	counts   map[string]int
	rng      *rand.Rand
	conns    map[net.Conn]struct{}
}

// Start starts a proxy for a server on its own loopback port. Close ends it.
func Start(target string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for a proxy to %s: %w", target, err)
	}
	p := &Proxy{
		target: target, url: "http://" + l.Addr().String(), limit: DefaultLimit, counts: make(map[string]int),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}},
		rng:    rand.New(rand.NewPCG(1, 1)), conns: make(map[net.Conn]struct{}),
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute, ConnState: p.trackConnection}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

// URL returns the endpoint for clients.
func (p *Proxy) URL() string { return p.url }

// Close cuts all connections and ends the proxy.
func (p *Proxy) Close() {
	_ = p.server.Close()
	p.client.CloseIdleConnections()
}

// CutAll cuts all clients' connections. Their requests may have been carried out or not.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// trackConnection tracks the open connections.
func (p *Proxy) trackConnection(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if state == http.StateClosed || state == http.StateHijacked {
		delete(p.conns, c)
	} else {
		p.conns[c] = struct{}{}
	}
}

// SetLimit sets the MaximumMessageSize of every queue, which bounds a message with its attributes, and all messages
// of a batch together. It is [DefaultLimit] at first.
func (p *Proxy) SetLimit(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = bytes
}

// Seed seeds the random numbers for rules with a Chance.
func (p *Proxy) Seed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rng = rand.New(rand.NewPCG(seed, 1))
}

// Counts returns the number of requests of each action so far, including those with a fault.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Violations returns the requests that SQS would refuse, each with the documented reason. The proxy refused them.
func (p *Proxy) Violations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.violated...)
}

// ServeHTTP handles one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	c, err := sqsfake.ParseCall(r.Header, body)
	if err != nil {
		(&sqsfake.Refusal{Status: http.StatusBadRequest, Code: "SerializationException", Message: err.Error()}).Write(w)
		return
	}
	rule, limit := p.matchRule(c)
	if refusal := c.Check(limit); refusal != nil {
		p.mu.Lock()
		p.violated = append(p.violated, fmt.Sprintf("%s on %s: %s: %s", c.Action, c.Queue, refusal.Code, refusal.Message))
		p.mu.Unlock()
		refusal.Write(w)
		return
	}
	if rule == nil {
		p.forwardAnswer(w, r, body)
		return
	}
	rule.answerFault(w, r, c, body)
}

// matchRule counts a request and returns the rule that it matches.
func (p *Proxy) matchRule(c *Call) (*Active, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[c.Action]++
	for _, a := range p.rules {
		if a.matchLocked(c, p.rng) {
			return a, p.limit
		}
	}
	return nil, p.limit
}

// answer is an answer of the server.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// forward forwards a request and returns the answer. The request ends when the client's ends.
func (p *Proxy) forward(r *http.Request, body []byte) (*answer, error) {
	//nolint:gosec // A proxy forwards its clients' requests; this one listens on loopback.
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = r.Header.Clone()
	resp, err := p.client.Do(req) //nolint:gosec // as above
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &answer{resp.StatusCode, resp.Header, text}, nil
}

// forwardAnswer forwards a request and its answer. If the server is unreachable, it cuts the connection without an
// answer, as without a proxy.
func (p *Proxy) forwardAnswer(w http.ResponseWriter, r *http.Request, body []byte) {
	a, err := p.forward(r, body)
	if err != nil {
		cutConnection(w)
		return
	}
	a.write(w)
}

func (a *answer) write(w http.ResponseWriter) {
	for _, name := range []string{"Content-Type", "X-Amzn-Requestid", "X-Amzn-Query-Error"} {
		if v := a.header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) //nolint:gosec // it is JSON, and no browser reads it
}

// cutConnection cuts the client's connection without an answer.
func cutConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(errors.Join(http.ErrAbortHandler, err))
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset, so that it does not look like the end of an answer
	}
	_ = conn.Close()
}
