package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// handling is a sidecar that runs in this process.
type handling struct {
	t    *testing.T
	stop func() ending
	out  *buffer
}

// handle runs the command until stop is called.
func (s *testKafka) handle(args ...string) *handling { return s.handleIn(nil, args...) }

// handleIn is handle with an environment.
func (s *testKafka) handleIn(env map[string]string, args ...string) *handling {
	s.t.Helper()
	return s.start(env, append([]string{"run", "-o", "json", "--broker", s.url, "--topic", "payments", "--group", "billing", "--backoff", "fixed:50ms"}, args...)...)
}

// start runs the command with these arguments until stop is called.
func (s *testKafka) start(env map[string]string, args ...string) *handling {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan ending, 1)
	h := &handling{t: s.t, out: &buffer{}}
	var errs buffer
	go func() {
		code := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(""), Out: h.out, Err: &errs, Env: func(name string) string { return env[name] }, MaxClose: maxWait})
		ended <- ending{code, h.out.String(), errs.String()}
	}()
	h.stop = sync.OnceValue(func() ending {
		cancel()
		select {
		case e := <-ended:
			return e
		case <-time.After(maxWait):
			s.t.Error("it does not end")
			return ending{code: -1}
		}
	})
	s.t.Cleanup(func() { h.stop() })
	return h
}

// asked is one message as it was posted to a handler.
type asked struct {
	body   string
	header http.Header
}

// program is an HTTP handler whose answers the test chooses.
type program struct {
	*httptest.Server

	mu  sync.Mutex
	all []asked
}

func newProgram(t *testing.T, answer func(w http.ResponseWriter, a asked)) *program {
	t.Helper()
	p := &program{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a := asked{string(body), r.Header}
		p.mu.Lock()
		p.all = append(p.all, a)
		p.mu.Unlock()
		answer(w, a)
	}))
	t.Cleanup(p.Close)
	return p
}

// attempts returns the attempts that were posted, by body.
func (p *program) attempts() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]string)
	for _, a := range p.all {
		all[a.body] += a.header.Get("Redeliver-Attempt")
	}
	return all
}

func payments(texts ...string) (all []*kgo.Record) {
	for i, text := range texts {
		all = append(all, &kgo.Record{Topic: "payments", Partition: int32(i % 2), Key: []byte(text), Value: []byte(text), Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("acme")}}})
	}
	return all
}

// dead reads the DLQ of payments, and returns the reason and the error by body.
func (s *testKafka) dead(n int) map[string]string {
	s.t.Helper()
	all := make(map[string]string)
	for _, r := range s.records("payments.billing.dlq", n) {
		h := make(map[string]string)
		for _, own := range r.Headers {
			h[own.Key] = string(own.Value)
		}
		all[string(r.Value)] = h[redeliver.HeaderReason] + ": " + h[redeliver.HeaderError]
	}
	return all
}

// Each answer of an HTTP handler has its effect on the message.
func TestRunHTTP(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(w http.ResponseWriter, a asked) {
		attempt := a.header.Get("Redeliver-Attempt")
		switch {
		case a.body == "bad":
			http.Error(w, "no such card", http.StatusBadRequest)
		case a.body == "down", a.body == "recovers" && attempt < "3":
			http.Error(w, "the bank is closed", http.StatusInternalServerError)
		case a.body == "busy" && attempt == "1":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	s.put(payments("good", "bad", "down", "recovers", "busy")...)
	h := s.handle("--retries", "2", "--http", p.URL+"/charge", "--health", "127.0.0.1:0")
	want := map[string]string{"good": "1", "bad": "1", "down": "123", "recovers": "123", "busy": "12"}
	s.await("all attempts are made", func() bool { return fmt.Sprint(p.attempts()) == fmt.Sprint(want) })
	got := s.dead(2)
	if got["bad"] != "permanent: the handler answered 400 Bad Request: no such card" || got["down"] != "exhausted: the handler answered 500 Internal Server Error: the bank is closed" {
		t.Errorf("in the DLQ are %q", got)
	}
	var row struct {
		Health  string `json:"health"`
		Handler string `json:"handler"`
		Group   string `json:"group"`
	}
	if err := json.Unmarshal([]byte(h.out.String()), &row); err != nil || row.Handler != p.URL+"/charge" || row.Group != "billing" {
		t.Fatalf("%v: %s", err, h.out.String())
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		answer, err := http.Get(row.Health + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s is %s", path, answer.Status)
		}
	}
	h.stop().want(t, 0)
	first := p.all[0].header
	if first.Get("Redeliver-Header-Tenant") != "acme" || first.Get("Redeliver-Origin") != "payments" || first.Get("Redeliver-Property-Offset") == "" {
		t.Errorf("%v", first)
	}
}

// A dead letter also has Spring's headers if they are requested.
func TestRunWritesSpringHeaders(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(w http.ResponseWriter, _ asked) { http.Error(w, "no such card", http.StatusUnprocessableEntity) })
	s.put(payments("a")...)
	h := s.handle("--spring-headers", "--http", p.URL)
	said := make(map[string]string)
	for _, own := range s.records("payments.billing.dlq", 1)[0].Headers {
		said[own.Key] = string(own.Value)
	}
	h.stop().want(t, 0)
	if said["kafka_dlt-original-topic"] != "payments" || said["kafka_dlt-original-consumer-group"] != "billing" || !strings.Contains(said["kafka_dlt-exception-message"], "no such card") {
		t.Errorf("the dead letter says %q", said)
	}
}

// A post is an event if that is requested, and has the Authorization header.
func TestRunPostsEvents(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	s.put(payments("a")...)
	h := s.handleIn(map[string]string{"REDELIVER_HTTP_AUTHORIZATION": "Bearer secret\n"}, "--http", p.URL, "--cloudevents", "--event-type", "shop.payment")
	s.await("it is posted", func() bool { return len(p.attempts()) == 1 })
	got := h.stop().want(t, 0)
	header := p.all[0].header
	for name, want := range map[string]string{
		"Ce-Specversion": "1.0", "Ce-Source": "/payments", "Ce-Type": "shop.payment", "Ce-Partitionkey": "a", "Authorization": "Bearer secret",
	} {
		if header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, header.Get(name), want)
		}
	}
	if id := header.Get("Ce-Id"); !strings.HasPrefix(id, "payments/0/0@") {
		t.Errorf("the event's id is %q", id)
	}
	if strings.Contains(got.out+got.err, "secret") {
		t.Errorf("it contains the secret: %s%s", got.out, got.err)
	}
}

// setLockDuration sets a setting of a share group for which the fake broker has no default.
func (s *testKafka) setLockDuration(group string) {
	s.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
		ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: group,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.record.lock.duration.ms", Value: new("30000")}},
	})
	if resp, err := req.RequestWith(s.t.Context(), s.cl); err != nil || resp.Resources[0].ErrorCode != 0 {
		s.t.Fatal(resp, err)
	}
}

// Each message of a batch has its own answer, also in a share group.
func TestRunBatches(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"kafka://", "kafka+share://"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			answersEachMessage(t, scheme)
		})
	}
}

func answersEachMessage(t *testing.T, scheme string) {
	s := newTestKafka(t)
	s.url = strings.Replace(s.url, "kafka://", scheme, 1)
	s.topics("payments")
	s.setLockDuration("billing")
	type message struct {
		Attempt  int    `json:"attempt"`
		BodyText string `json:"body_text"`
	}
	var mu sync.Mutex
	seen := make(map[string]int) // the latest attempt by body
	largest := 0
	p := newProgram(t, func(w http.ResponseWriter, a asked) {
		var req struct {
			Messages []message `json:"messages"`
		}
		if err := json.Unmarshal([]byte(a.body), &req); err != nil {
			t.Error(err)
		}
		answers := []map[string]any{}
		mu.Lock()
		defer mu.Unlock()
		largest = max(largest, len(req.Messages))
		for i, m := range req.Messages {
			seen[m.BodyText] = m.Attempt
			switch {
			case m.BodyText == "bad":
				answers = append(answers, map[string]any{"index": i, "answer": "reject", "reason": "no such card"})
			case m.BodyText == "later" && m.Attempt < 3:
				answers = append(answers, map[string]any{"index": i, "answer": "retry", "delay": "10ms", "reason": "busy"})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"answers": answers})
	})
	s.put(payments("a", "bad", "b", "later", "c", "d")...)
	h := s.handle("--http", p.URL, "--batch", "3", "--batch-wait", "100ms")
	s.await("all are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == 6 && seen["later"] == 3
	})
	if got := s.dead(1); !strings.HasSuffix(got["bad"], "rejected: no such card") {
		t.Errorf("in the DLQ are %q", got)
	}
	h.stop().want(t, 0)
	if seen["a"] != 1 || largest < 2 || largest > 3 {
		t.Errorf("%v, batches of up to %d", seen, largest)
	}
}

// A command runs once for each message.
func TestRunExec(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	dir := t.TempDir()
	// The shell is this test's handler. redeliver runs the command without a shell.
	script := `body=$(cat); echo "$REDELIVER_ATTEMPT $REDELIVER_HEADER_TENANT" >> "$0/$body"
case "$body" in bad) echo "no such card" >&2; exit 65;; down) echo "closed" >&2; exit 75;; esac`
	s.put(payments("good", "bad", "down")...)
	h := s.handle("--retries", "1", "--exec", "--", "/bin/sh", "-c", script, dir)
	got := s.dead(2)
	if got["bad"] != "permanent: exit status 65: no such card" || got["down"] != "exhausted: exit status 75: closed" {
		t.Errorf("in the DLQ are %q", got)
	}
	s.await("the good one is handled", func() bool { return lines(t, filepath.Join(dir, "good")) == 1 })
	h.stop().want(t, 0, "no such card")
	for body, want := range map[string]string{"good": "1 acme\n", "bad": "1 acme\n", "down": "1 acme\n2 acme\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, body)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", body, text, err, want)
		}
	}
}
