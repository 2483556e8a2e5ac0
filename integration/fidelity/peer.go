// Package fidelity compares messages with the help of independent clients: a peer, which publishes and reads messages
// on command, and a worker between, which sees each message at every attempt. The suites know the wire format of a
// message.
package fidelity

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// MaxWait bounds the wait for something that must happen.
const MaxWait = 60 * time.Second

// Peer is an independent client in its own process, with messages of type M. It runs the script peer.py beside the
// test, which has a class Peer, whose methods are the commands, and ERRORS, the exceptions that they may raise. Each
// command and each answer is one line of JSON.
type Peer[M any] struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// Answer is the answer of a peer. The command determines which fields are set.
type Answer[M any] struct {
	Error      string            `json:"error"`
	ID         string            `json:"id"`
	Messages   []M               `json:"messages"`
	Attributes map[string]string `json:"attributes"`
}

// StartPeer starts a peer for the broker at url. It ends with the test. The peer itself may report the error.
func StartPeer[M any](t *testing.T, python, url string) (*Peer[M], error) {
	t.Helper()
	socket, err := parentOf(python)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", socket)
	if err != nil {
		return nil, err
	}
	p := &Peer[M]{in: conn, out: bufio.NewReaderSize(conn, 1<<20)}
	if _, err := p.Do(url); err != nil {
		_ = conn.Close()
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() }) // its work is done
	return p, nil
}

func (p *Peer[M]) read() (a Answer[M], err error) {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Do sends a command to the peer and returns its answer.
func (p *Peer[M]) Do(command any) (a Answer[M], err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line, err := json.Marshal(command)
	if err != nil {
		return a, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return a, err
	}
	return p.read()
}

// Take removes n messages from a queue and returns them.
func (p *Peer[M]) Take(t *testing.T, queue string, n int) []M {
	t.Helper()
	got := p.TakeUpTo(t, queue, n, MaxWait)
	if len(got) != n {
		t.Fatalf("%d messages in %s, want %d", len(got), queue, n)
	}
	return got
}

// TakeUpTo removes at most n messages from a queue, and fewer if none arrives within wait.
func (p *Peer[M]) TakeUpTo(t *testing.T, queue string, n int, wait time.Duration) []M {
	t.Helper()
	a, err := p.Do(map[string]any{"op": "take", "queue": queue, "n": n, "wait": wait.Seconds()})
	if err != nil {
		t.Fatalf("the peer: reading %s: %v", queue, err)
	}
	return a.Messages
}
