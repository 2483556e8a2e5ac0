package examples_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/programs"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The two commands of the example's README work with other addresses and another topic: a handler in Python, and
// redeliver run.
func TestSidecarPython(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	bin, err := programs.Build("", "./cmd/redeliver")
	if err != nil {
		t.Fatal(err)
	}
	scripts := t.TempDir()
	readme, err := os.ReadFile(filepath.Join(root, "examples", "sidecar-python", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(readme)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "python3 ") || strings.HasPrefix(line, "redeliver run ") {
			commands = append(commands, line)
		}
	}
	if len(commands) != 2 {
		t.Fatalf("the README has the commands %q", commands)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := newKafkaTopic(t, newName())
	ours := strings.NewReplacer("kafka://localhost:9092", f.broker, "--topic orders", "--topic "+f.topic, "8080", port)
	shell := func(name, command string) *program {
		script := fmt.Sprintf("#!/bin/sh\ncd %s && PATH=%s:$PATH exec %s\n", root, bin, ours.Replace(command))
		if err := os.WriteFile(filepath.Join(scripts, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return start(t, nil, filepath.Join(scripts, name))
	}
	for i, card := range []string{`"4111"`, `"4111"`, `"4111"`, "null", `"4111"`} {
		f.produce(&kgo.Record{Value: fmt.Appendf(nil, `{"number": %d, "card": %s}`, i+1, card)})
	}
	f.produce(&kgo.Record{Value: []byte("six")})
	handler := shell("handler", commands[0])
	if line, _ := handler.next(); !strings.Contains(line, port) {
		t.Fatalf("the handler says %q", line)
	}
	sidecar := shell("sidecar", commands[1])
	var lines []string
	for range 4 {
		line, _ := handler.next()
		lines = append(lines, line)
	}
	slices.Sort(lines)
	if want := []string{"order 1 is charged, attempt 1", "order 2 is charged, attempt 1", "order 3 is charged, attempt 3", "order 5 is charged, attempt 2"}; !slices.Equal(lines, want) {
		t.Errorf("it says %q, want %q", lines, want)
	}
	dead := make(map[string]string)
	for _, rec := range firstRecords(t, f.broker, f.topic+".billing.dlq", 2) {
		headers := make(map[string]string)
		for _, h := range rec.Headers {
			headers[h.Key] = string(h.Value)
		}
		dead[string(rec.Value)] = headers[redeliver.HeaderReason] + ", attempt " + headers[redeliver.HeaderAttempt] + ": " + headers[redeliver.HeaderError]
	}
	if got := dead[`{"number": 4, "card": null}`]; got != "permanent, attempt 1: the handler answered 422 Unprocessable Entity: no such card" {
		t.Errorf("the order without a card: %q", got)
	}
	if got := dead["six"]; !strings.HasPrefix(got, "permanent, attempt 1: the handler answered 400 Bad Request: no order: ") {
		t.Errorf("not an order: %q", got)
	}
	sidecar.signal(syscall.SIGTERM)
	sidecar.rest()
	if status := sidecar.status(); status != 0 {
		t.Errorf("the sidecar ends with %d", status)
	}
	handler.signal(os.Interrupt)
	if more, status := handler.rest(), handler.status(); len(more) > 0 || status != 0 {
		t.Errorf("the handler ends with %d, after %q", status, more)
	}
}

// firstRecords waits for n records of a topic and returns them, perhaps with later ones.
func firstRecords(t *testing.T, broker, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	recs, err := kafkatest.ReadFirst(ctx, strings.Split(strings.TrimPrefix(broker, "kafka://"), ","), topic, n)
	if err != nil {
		t.Fatal(err)
	}
	return recs
}
