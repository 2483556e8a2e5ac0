// Package boto_test compares, with boto3 as the independent client, what was
// sent with what the handler sees at every attempt and what is in the DLQ.
package boto_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// attribute is a message attribute as boto3 sends and receives it.
type attribute struct {
	Type  string `json:"t"`
	Value string `json:"v"` // of a binary one as hex digits
}

func str(s string) attribute              { return attribute{"String", s} }
func number(s string) attribute           { return attribute{"Number", s} }
func binary(b ...byte) attribute          { return attribute{"Binary", hex.EncodeToString(b)} }
func (a attribute) as(t string) attribute { return attribute{a.Type + "." + t, a.Value} }

type attributes map[string]attribute

// wire is a message as boto3 sends and receives it.
type wire struct {
	ID         string     `json:"id,omitempty"`
	Body       string     `json:"body"`
	Attributes attributes `json:"attributes"`
	Group      string     `json:"group,omitempty"`
	Dedup      string     `json:"dedup,omitempty"`
	Trace      string     `json:"trace,omitempty"`
	Received   int        `json:"received,omitempty"` // ApproximateReceiveCount
}

// peer is a boto3 client, a process of its own.
type peer struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

type answer struct {
	Error      string            `json:"error"`
	ID         string            `json:"id"`
	Messages   []wire            `json:"messages"`
	Attributes map[string]string `json:"attributes"`
}

func newPeer(t *testing.T, url string) *peer {
	t.Helper()
	cmd := exec.Command(brokers.RequirePython(t), "peer.py", url)
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
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // its work is done
	})
	p := &peer{in: in, out: bufio.NewReaderSize(out, 1<<20)}
	if _, err := p.read(); err != nil {
		t.Fatalf("boto3 did not start: %v", err)
	}
	return p
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

func (p *peer) do(command map[string]any) (answer, error) {
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

// create makes a queue, a FIFO queue by its name.
func (p *peer) create(t *testing.T, queue string, settings map[string]string) {
	t.Helper()
	all := map[string]string{}
	maps.Copy(all, settings)
	if strings.HasSuffix(queue, ".fifo") {
		all["FifoQueue"] = "true"
	}
	if _, err := p.do(map[string]any{"op": "create", "queue": queue, "attributes": all}); err != nil {
		t.Fatalf("boto3: creating %s: %v", queue, err)
	}
}

// put sends messages and notes their ids.
func (p *peer) put(t *testing.T, queue string, msgs ...wire) []wire {
	t.Helper()
	sent := make([]wire, len(msgs))
	for i, m := range msgs {
		a, err := p.do(map[string]any{"op": "send", "queue": queue, "message": m})
		if err != nil {
			t.Fatalf("boto3: sending %.40q: %v", m.Body, err)
		}
		m.ID = a.ID
		sent[i] = m
	}
	return sent
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

// takeUpTo takes at most n messages, and fewer when none came for so long.
func (p *peer) takeUpTo(t *testing.T, queue string, n int, wait time.Duration) []wire {
	t.Helper()
	a, err := p.do(map[string]any{"op": "take", "queue": queue, "n": n, "wait": wait.Seconds()})
	if err != nil {
		t.Fatalf("boto3: reading %s: %v", queue, err)
	}
	return a.Messages
}

// settings are the attributes of a queue.
func (p *peer) settings(t *testing.T, queue string) map[string]string {
	t.Helper()
	a, err := p.do(map[string]any{"op": "attributes", "queue": queue})
	if err != nil {
		t.Fatalf("boto3: asking for %s: %v", queue, err)
	}
	return a.Attributes
}
