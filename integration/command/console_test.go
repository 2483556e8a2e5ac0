package command_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// redeliver console shows the DLQs and waiting messages of all three brokers, and ends gracefully on SIGTERM.
func TestConsole(t *testing.T) {
	t.Parallel()
	const kinds, eachKind = 3, 3
	shops := []*shop{kafkaShop(t), rabbitShop(t, brokers.RequireRabbitMQ(t)), sqsShop(t)}
	// RabbitMQ's management API counts its waiting messages. Each profile may name one.
	profiles := filepath.Join(t.TempDir(), "profiles.yaml")
	text := "rabbitmq:\n  broker: " + shops[1].url + "\n  management-url: " + brokers.RequireRabbitMQ(t).Management() + "\n"
	if err := os.WriteFile(profiles, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"console", "--listen", "127.0.0.1:0", "-o", "jsonl", "--refresh", "1s", "--config", profiles, "--profile", "rabbitmq"}
	for i, s := range shops {
		s.work("header:rule", "dead_letter", kinds*eachKind, func() {
			for n := range eachKind {
				for _, rule := range []string{"permanent", "panic", "always"} {
					s.send(fmt.Sprintf("%s %d", rule, n), "rule="+rule)
				}
			}
		})
		broker := []string{"kafka", "rabbitmq", "sqs"}[i]
		if broker != "rabbitmq" {
			args = append(args, "--broker", s.url)
		}
		args = append(args, "--dlq", broker+"/"+s.dlq)
	}
	cmd := exec.Command(filepath.Join(built, "redeliver"), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs output
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var row struct {
		URL    string `json:"url"`
		Queues int    `json:"queues"`
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || json.Unmarshal([]byte(line), &row) != nil || row.Queues != len(shops) {
		_ = cmd.Process.Kill()
		t.Fatalf("it prints %q: %v; %v %s", line, err, cmd.Wait(), errs.String())
	}
	page := ""
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for !strings.Contains(page, fmt.Sprintf(">%d dead letters<", len(shops)*kinds*eachKind)) {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the page is\n%s\n%s", page, errs.String())
		}
		answer, err := http.Get(row.URL)
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		page = string(text)
	}
	for _, s := range shops {
		if !strings.Contains(page, ">"+s.dlq+"<") {
			t.Errorf("the page lacks %s:\n%s", s.dlq, page)
		}
	}
	if strings.Contains(page, "not told") || strings.Contains(page, "no answer") || strings.Contains(errs.String(), "is not known") {
		t.Errorf("the waiting messages are not reported:\n%s\n%s", page, errs.String())
	}
	for _, s := range shops {
		late.Reset(maxWait) // each has a process that handles replayed messages
		(&visitor{t: t, base: row.URL}).replayOneCause(s, eachKind)
	}
	late.Reset(maxWait)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, errs.String())
	}
}

// output collects the output of a process while a test reads it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
