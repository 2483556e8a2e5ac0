package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sidecar is a process of redeliver run.
type sidecar struct {
	t    *testing.T
	cmd  *exec.Cmd
	errs bytes.Buffer
}

func (s *shop) sidecar(args ...string) *sidecar {
	s.t.Helper()
	args = append([]string{"run", "--topic", s.topic, "--backoff", "fixed:1s", "--retries", "2"}, args...)
	if s.group != "" {
		args = append([]string{args[0], "--group", s.group}, args[1:]...)
	}
	c := &sidecar{t: s.t, cmd: exec.Command(filepath.Join(built, "redeliver"), args...)}
	c.cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
	c.cmd.Stderr = &c.errs
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
		if s.t.Failed() {
			s.t.Logf("redeliver %s:\n%s", strings.Join(args, " "), c.errs.String())
		}
	})
	return c
}

// end ends the process and requires a graceful end.
func (c *sidecar) end() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	late := time.AfterFunc(maxWait, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("it ends with %v", err)
	}
}

// handler is an HTTP handler that receives messages.
type handler struct {
	*httptest.Server

	mu       sync.Mutex
	attempts map[string]string // by body
	posts    chan struct{}
}

func newHandler(t *testing.T, answer func(w http.ResponseWriter, body, attempt string)) *handler {
	t.Helper()
	h := &handler{attempts: make(map[string]string), posts: make(chan struct{}, 1_000_000)}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil { // the sidecar was killed
			return
		}
		attempt := r.Header.Get("Redeliver-Attempt")
		if tenant := r.Header.Get("Redeliver-Header-Tenant"); tenant != "acme" && !strings.HasPrefix(string(body), "{") {
			t.Errorf("%s: the tenant is %q", body, tenant)
		}
		h.mu.Lock()
		h.attempts[string(body)] += attempt
		h.mu.Unlock()
		h.posts <- struct{}{}
		answer(w, string(body), attempt)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *handler) seen() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.attempts)
}

// await waits until ok returns true.
func await(t *testing.T, what func() string, ok func() bool) {
	t.Helper()
	awaitEvery(t, 50*time.Millisecond, what, ok)
}

func awaitEvery(t *testing.T, pause time.Duration, what func() string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %s: %s", maxWait, what())
		}
	}
}

// awaitDeadLetters waits until there are n messages in the DLQ, and returns the reason of each.
func (s *shop) awaitDeadLetters(n int) map[string]string {
	s.t.Helper()
	var dead map[string]string
	awaitEvery(s.t, betweenLooks, func() string { return fmt.Sprintf("the DLQ has %v, want %d", dead, n) }, func() bool {
		dead = make(map[string]string)
		for _, row := range s.rows(0, append([]string{"dlq", "show", "--limit", "0"}, s.whose...)...) {
			dead[row["body_text"].(string)] = fmt.Sprint(row["reason"], ": ", row["error"])
		}
		return len(dead) >= n
	})
	return dead
}

// Any HTTP server can be the handler, on every broker.
func TestRunPosts(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		h := newHandler(t, func(w http.ResponseWriter, body, attempt string) {
			switch {
			case body == "bad":
				http.Error(w, "no such card", http.StatusUnprocessableEntity)
			case body == "down", body == "recovers" && attempt == "1":
				http.Error(w, "the bank is closed", http.StatusInternalServerError)
			case body == "busy" && attempt == "1":
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		run := s.sidecar("--http", h.URL+"/orders")
		for _, body := range []string{"good", "bad", "down", "recovers", "busy"} {
			s.send(body, "tenant=acme")
		}
		want := map[string]string{"good": "1", "bad": "1", "down": "123", "recovers": "12", "busy": "12"}
		await(t, func() string { return fmt.Sprint(h.seen()) }, func() bool { return maps.Equal(h.seen(), want) })
		dead := s.awaitDeadLetters(2)
		run.end()
		if dead["bad"] != "permanent: the handler answered 422 Unprocessable Entity: no such card" || dead["down"] != "exhausted: the handler answered 500 Internal Server Error: the bank is closed" {
			t.Errorf("in the DLQ are %v", dead)
		}
	})
}

// A handler of batches returns a result for each message.
func TestRunPostsBatches(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		type answer struct {
			Index  int    `json:"index"`
			Answer string `json:"answer"`
			Delay  string `json:"delay,omitempty"`
			Reason string `json:"reason,omitempty"`
		}
		var mu sync.Mutex
		attempts := make(map[string]int)
		h := newHandler(t, func(w http.ResponseWriter, body, _ string) {
			var req struct {
				Messages []struct {
					Attempt int    `json:"attempt"`
					Body    string `json:"body_text"`
					Headers []struct {
						Name string `json:"name"`
						Text string `json:"text"`
					} `json:"headers"`
				} `json:"messages"`
			}
			if err := json.Unmarshal([]byte(body), &req); err != nil {
				t.Error(err)
			}
			answers := []answer{}
			mu.Lock()
			defer mu.Unlock()
			for i, m := range req.Messages {
				attempts[m.Body] = m.Attempt
				if len(m.Headers) != 1 || m.Headers[0].Name != "tenant" || m.Headers[0].Text != "acme" {
					t.Errorf("%s has the headers %v", m.Body, m.Headers)
				}
				switch {
				case m.Body == "bad":
					answers = append(answers, answer{i, "reject", "", "no such card"})
				case m.Body == "later" && m.Attempt == 1:
					answers = append(answers, answer{i, "retry", "1s", "busy"})
				}
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"answers": answers})
		})
		run := s.sidecar("--http", h.URL, "--batch", "3", "--batch-wait", "200ms")
		for _, body := range []string{"a", "bad", "b", "later", "c", "d"} {
			s.send(body, "tenant=acme")
		}
		want := map[string]int{"a": 1, "bad": 1, "b": 1, "later": 2, "c": 1, "d": 1}
		seen := func() map[string]int {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(attempts)
		}
		await(t, func() string { return fmt.Sprint(seen()) }, func() bool { return maps.Equal(seen(), want) })
		dead := s.awaitDeadLetters(1)
		run.end()
		if !strings.HasSuffix(dead["bad"], "rejected: no such card") {
			t.Errorf("in the DLQ are %v", dead)
		}
	})
}

// A command is run for each message, on every broker. A short timeout would also end commands that a busy machine
// starts slowly, so only one command hangs, in its last attempt.
func TestRunHandlesMessagesWithACommand(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		dir := t.TempDir()
		script := `body=$(cat); echo "$REDELIVER_ATTEMPT $REDELIVER_HEADER_TENANT" >> "$0/$body"
case "$body" in bad) echo "no such card" >&2; exit 65;; down) echo "closed" >&2; exit 75;; hangs) [ "$REDELIVER_ATTEMPT" = 3 ] || exit 75; sleep 1000 & sleep 1000;; esac`
		run := s.sidecar("--timeout", "8s", "--exec", "--", "/bin/sh", "-c", script, dir)
		for _, body := range []string{"good", "bad", "down", "hangs"} {
			s.send(body, "tenant=acme")
		}
		await(t, func() string { return "no command was run" }, func() bool {
			_, err := os.Stat(filepath.Join(dir, "good"))
			return err == nil
		})
		dead := s.awaitDeadLetters(3)
		run.end()
		for body, want := range map[string]string{"bad": "permanent: exit status 65: no such card", "down": "exhausted: exit status 75: closed", "hangs": "timeout: handler still running after its timeout of 8s"} {
			if dead[body] != want {
				t.Errorf("%s is in the DLQ with %q, want %q", body, dead[body], want)
			}
		}
		for body, want := range map[string]string{"good": "1 acme\n", "down": "1 acme\n2 acme\n3 acme\n", "hangs": "1 acme\n2 acme\n3 acme\n"} {
			if text, err := os.ReadFile(filepath.Join(dir, body)); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v; want %q", body, text, err, want)
			}
		}
	})
}

// After two kills of the sidecar with SIGKILL, every message is handled or in the DLQ.
func TestAKilledSidecarLosesNothing(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		const n, kills = 120, 2
		h := newHandler(t, func(w http.ResponseWriter, body, attempt string) {
			switch {
			case strings.HasSuffix(body, "0"):
				w.WriteHeader(http.StatusBadRequest)
			case strings.HasSuffix(body, "1") && attempt == "1":
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		for i := range n {
			s.send(fmt.Sprintf("order %03d", i), "tenant=acme")
		}
		args := []string{"--http", h.URL, "--concurrency", "4"}
		if s.group != "" {
			args = append(args, "--instance-id", "one") // so that the next one need not wait for the end of the session
		}
		for range kills {
			run := s.sidecar(args...)
			for range 25 {
				select {
				case <-h.posts:
				case <-time.After(maxWait):
					t.Fatalf("nothing is posted: %s", run.errs.String())
				}
			}
			_ = run.cmd.Process.Kill()
			_ = run.cmd.Wait()
			if run.cmd.ProcessState.Exited() {
				t.Errorf("it has ended unexpectedly: %s", run.errs.String())
			}
		}
		run := s.sidecar(args...)
		var missing []string
		await(t, func() string { return fmt.Sprintf("missing: %v", missing) }, func() bool {
			seen := h.seen()
			missing = missing[:0]
			for i := range n {
				body := fmt.Sprintf("order %03d", i)
				if attempts := seen[body]; attempts == "" || strings.HasSuffix(body, "1") && !strings.ContainsAny(attempts, "23") {
					missing = append(missing, body)
				}
			}
			return len(missing) == 0
		})
		dead := s.awaitDeadLetters(n / 10)
		run.end()
		for _, body := range slices.Sorted(maps.Keys(dead)) {
			if !strings.HasSuffix(body, "0") {
				t.Errorf("%s is in the DLQ: %s", body, dead[body])
			}
		}
	})
}
