// Package pika_test compares, with an independent client, what was published
// with what the handler sees at every attempt and what is in the DLQ.
package pika_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// value is a header's value on the wire: its kind, and its bytes.
type value struct {
	Kind  string           `json:"k,omitempty"`
	Bytes string           `json:"v,omitempty"` // as hex digits
	Table map[string]value `json:"t,omitempty"`
	Array []value          `json:"a,omitempty"`
	Py    string           `json:"py,omitempty"` // as pika's users write it
}

func raw(kind string, b ...byte) value { return value{Kind: kind, Bytes: hex.EncodeToString(b)} }
func text(s string) value              { return raw("S", []byte(s)...) }
func table(t map[string]value) value   { return value{Kind: "F", Table: t} }
func array(a ...value) value           { return value{Kind: "A", Array: a} }

func (v value) text() string {
	b, err := hex.DecodeString(v.Bytes)
	if err != nil || v.Kind != "S" {
		return "(no text)"
	}
	return string(b)
}

type (
	headers map[string]value
	props   map[string]any
)

// wire is a message as pika publishes and reads it.
type wire struct {
	Exchange string  `json:"exchange"`
	Key      string  `json:"key"`
	Props    props   `json:"props,omitempty"`
	Headers  headers `json:"headers"`
	Body     []byte  `json:"body"`
}

// peer is a pika client, a process of its own.
type peer struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

type answer struct {
	Missing  string `json:"missing"`
	Error    string `json:"error"`
	Messages []wire `json:"messages"`
}

// newPeer starts pika. Debian's package is found beside another python too.
func newPeer(t *testing.T, url string) *peer {
	t.Helper()
	var why string
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		cmd := exec.Command(python, "peer.py", url)
		cmd.Stderr = t.Output()
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			why = err.Error()
			continue
		}
		p := &peer{in: in, out: bufio.NewReaderSize(out, 1<<20)}
		hello, err := p.read()
		if err == nil && hello.Missing == "" {
			t.Cleanup(func() {
				_ = in.Close()
				_ = cmd.Wait() // its work is done
			})
			return p
		}
		why = hello.Missing
		_ = in.Close()
		_ = cmd.Wait() // it has failed, and said why
	}
	t.Fatalf("this test needs pika, the Python client of RabbitMQ: apt-get install python3-pika, or pip install pika: %s", why)
	return nil
}

func (p *peer) read() (answer, error) {
	var a answer
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

func (p *peer) do(command any) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line, err := json.Marshal(command)
	if err != nil {
		return answer{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return answer{}, err
	}
	return p.read()
}

type publishing struct {
	Op string `json:"op"`
	wire
}

// put publishes and waits until the broker has it.
func (p *peer) put(t *testing.T, msgs ...wire) {
	t.Helper()
	for _, m := range msgs {
		if _, err := p.do(publishing{"publish", m}); err != nil {
			t.Fatalf("pika: publishing %.40q: %v", m.Body, err)
		}
	}
}

// patience bounds the wait for something that must happen.
const patience = 60 * time.Second

// take takes n messages off a queue.
func (p *peer) take(t *testing.T, queue string, n int) []wire {
	t.Helper()
	got := p.takeUpTo(t, queue, n, patience)
	if len(got) != n {
		t.Fatalf("%d messages in %s, want %d", len(got), queue, n)
	}
	return got
}

func (p *peer) takeUpTo(t *testing.T, queue string, n int, wait time.Duration) []wire {
	t.Helper()
	a, err := p.do(map[string]any{"op": "get", "queue": queue, "n": n, "wait": wait.Seconds()})
	if err != nil {
		t.Fatalf("pika: reading %s: %v", queue, err)
	}
	return a.Messages
}

// call publishes with the direct reply-to and returns the reply.
func (p *peer) call(t *testing.T, m wire) []byte {
	t.Helper()
	a, err := p.do(publishing{"call", m})
	if err != nil {
		t.Fatalf("pika: calling: %v", err)
	}
	return a.Messages[0].Body
}
