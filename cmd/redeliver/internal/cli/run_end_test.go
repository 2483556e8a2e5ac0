package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// When run is stopped, running messages finish and count, and no new ones start.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	entered, leave := make(chan string), make(chan struct{})
	p := newProgram(t, func(_ http.ResponseWriter, a asked) {
		entered <- a.body
		<-leave
	})
	h := s.handle("--http", p.URL, "--concurrency", "1", "--drain", "1m")
	s.put(payments("a")...)
	<-entered
	s.put(payments("b")...)
	ended := make(chan ending)
	go func() { ended <- h.stop() }()
	select {
	case <-ended:
		t.Error("it has not waited")
	case body := <-entered:
		t.Errorf("%s has begun", body)
	case <-time.After(200 * time.Millisecond): // nothing must happen
	}
	close(leave)
	(<-ended).want(t, 0)
	h = s.handle("--http", p.URL)
	if body := <-entered; body != "b" {
		t.Errorf("%s comes back", body)
	}
	h.stop()
	if got := p.attempts(); got["a"] != "1" || got["b"] != "1" {
		t.Errorf("%v", got)
	}
}

// A message that takes longer than --drain comes back, and is not counted.
func TestRunDoesNotDrainForever(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	entered, leave := make(chan string, 2), make(chan struct{})
	p := newProgram(t, func(http.ResponseWriter, asked) {
		entered <- ""
		<-leave
	})
	defer close(leave)
	s.put(payments("a")...)
	h := s.handle("--http", p.URL, "--drain", "100ms")
	<-entered
	h.stop().want(t, 0, "abandoned")
	s.handle("--http", p.URL, "--drain", "100ms")
	<-entered
	if got := p.attempts(); got["a"] != "11" {
		t.Errorf("its attempts are %v", got)
	}
}

// A command that is cancelled at the end does not outlive the sidecar, even if it ignores signals.
func TestRunLeavesNoCommandRunning(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	path := filepath.Join(t.TempDir(), "pid")
	s.put(payments("a")...)
	h := s.handle("--drain", "100ms", "--exec", "--", "/bin/sh", "-c", `trap '' TERM; echo $$ > "$0.new"; mv "$0.new" "$0"; while :; do sleep 1; done`, path)
	s.await("the command runs", func() bool { return lines(t, path) == 1 })
	h.stop().want(t, 0)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v", pid, err)
	}
}

// The sidecar waits for a handler that has not started yet, and counts no attempt.
func TestRunWaitsForItsHandler(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	address := p.Listener.Addr().String()
	p.Close()
	s.put(payments("a", "b", "c")...)
	h := s.handle("--http", "http://"+address, "--retries", "0", "--health", "127.0.0.1:0")
	var row struct {
		Health string `json:"health"`
	}
	s.await("it says where its health is", func() bool { return json.Unmarshal([]byte(h.out.String()), &row) == nil })
	s.await("it is not ready", func() bool {
		answer, err := http.Get(row.Health + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		why, _ := io.ReadAll(answer.Body)
		return answer.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(why), "cannot be reached")
	})
	again := newProgramAt(t, address)
	s.await("all are handled", func() bool { return len(again.attempts()) == 3 })
	for body, attempts := range again.attempts() {
		if attempts != "1" {
			t.Errorf("%s: attempt %s", body, attempts)
		}
	}
	h.stop().want(t, 0)
}

func newProgramAt(t *testing.T, address string) *program {
	t.Helper()
	p := newProgram(t, func(http.ResponseWriter, asked) {})
	other := p.Config.Handler
	p.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewUnstartedServer(other)
	_ = p.Listener.Close()
	p.Listener = l
	p.Start()
	t.Cleanup(p.Server.Close)
	return p
}

// The sidecar is killed (kill -9) three times while messages are handled, fail and wait. In the end, each is handled or
// in the DLQ.
func TestAKilledSidecarLosesNothing(t *testing.T) {
	t.Parallel()
	const n, kills = 300, 3
	s := newTestKafka(t)
	s.topics("payments")
	var mu sync.Mutex
	done := make(map[string]bool)
	posts := make(chan struct{}, 100_000)
	p := newProgram(t, func(w http.ResponseWriter, a asked) {
		posts <- struct{}{}
		switch {
		case strings.HasSuffix(a.body, "0"):
			w.WriteHeader(http.StatusBadRequest)
		case strings.HasSuffix(a.body, "1") && a.header.Get("Redeliver-Attempt") < "3":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			mu.Lock()
			defer mu.Unlock()
			done[a.body] = true
		}
	})
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("order %03d", i))
	}
	s.put(payments(texts...)...)
	args := []string{"run", "--broker", s.url, "--topic", "payments", "--group", "billing", "--instance-id", "one", "--backoff", "fixed:100ms", "--retries", "10", "--concurrency", "5", "--http", p.URL}
	for range kills {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			select {
			case <-posts:
			case <-time.After(maxWait):
				_ = cmd.Process.Kill()
				t.Fatal("nothing is posted")
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Error("it has ended unexpectedly")
		}
	}
	s.handle("--instance-id", "one", "--retries", "10", "--http", p.URL)
	s.await("all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == n-n/10
	})
	dead := make(map[string]bool)
	s.await("the rest is in the DLQ", func() bool {
		for body := range s.dead(int(s.written("payments.billing.dlq"))) {
			dead[body] = true
		}
		return len(dead) == n/10
	})
	mu.Lock() // duplicates after a kill may still arrive
	defer mu.Unlock()
	for _, text := range texts {
		if !done[text] && !dead[text] {
			t.Errorf("%s is lost", text)
		}
	}
}

// One error has all problems of a call.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for args, says := range map[string][]string{
		"run": {"no broker given", "--topic", "no handler given"},
		"run --broker kafka://h:1 --topic a --http x":                                         {"--group", "must be http://"},
		"run --broker kafka://h:1 --topic a --topic a --group g --http http://h --exec -- x":  {"is given twice", "--http and --exec exclude"},
		"run --broker kafka://h:1 --topic a --group g --http http://h x":                      {`unexpected argument "x"`},
		"run --broker kafka://h:1 --topic a --group g --exec":                                 {"needs a command"},
		"run --broker kafka://h:1 --topic a --group g --exec ./charge":                        {"needs a command after --"},
		"run --broker kafka://h:1 --topic a --group g --exec a -- b":                          {"needs a command after --"},
		"run --broker kafka://h:1 --topic a --group g --exec -- /no/such/command":             {"--exec", "no/such/command"},
		"run --broker kafka://h:1 --topic a --group g --exec --cloudevents --batch 3 -- true": {"need --http", "--cloudevents and --batch exclude"},
		"run --broker kafka://h:1 --topic a --group g --http http://ann:s3cret@h":             {"must not contain a user", "REDELIVER_HTTP_AUTHORIZATION"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --concurrency -1 --retry-concurrency -1 --drain 0s --log xml --health 8081 --cloudevents --event-type=": {
			"--concurrency is -1", "--retry-concurrency is -1", "--drain is 0s", "--log", "--health", "--event-type",
		},
		"run --broker kafka://h:1 --topic a --group g --http http://h --batch-wait 1s":                                     {"need --batch"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --batch 10001 --batch-bytes 2000000000":              {"--batch is 10001: must be at most 10000", "--batch-bytes is 2000000000"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --batch 5 --retry-concurrency 2":                     {"--retry-concurrency and --batch exclude"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --retries -1 --timeout 0s --backoff soon --order up": {"--retries is -1", "--timeout is 0s", "--backoff", "--order"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --immediate 7 --max-levels 99":                       {"--immediate is 7", "--max-levels is 99"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --key-header k":                                      {"--key-header"},
		"run --broker kafka+share://h:1 --topic a --http http://h --key-header k":                                          {"--group", "--key-header"},
		"run --broker kafka+share://h:1 --topic a --group g --http http://h --order perkey --instance-id i --spring-headers --skip-existing --retention 96h": {
			"--order is through-retries", "kafka://", `--instance-id is "i"`, "--spring-headers", "--skip-existing: set share.auto.offset.reset=latest", "--retention is 96h0m0s: set retention.ms",
		},
		"run --broker kafka+share+tls://h:1 --topic a --group g --http http://h --order blocking": {"--order is blocking: a share group keeps no order"},
		"run --broker amqp://h --topic a --group g --instance-id i --http http://h":               {"--group", "--instance-id"},
		"run --broker amqp://h --topic a --http http://h --spring-headers --skip-existing":        {"--spring-headers", "--skip-existing", "only Kafka"},
		"run --broker amqp://h --topic a --order perkey --http http://h":                          {"--key-header"},
		"run --broker sqs://eu-west-1 --topic a --key-header k --http http://h":                   {"--key-header"},
		"run --broker kafka://h:1 --topic a --group g --http http://h --metrics":                  {"--metrics needs --health"},
	} {
		got := call{}.run(t, strings.Fields(args)...).want(t, 2, append(says, "--help")...)
		if got.out != "" || strings.Contains(got.err, "s3cret") {
			t.Errorf("%s: %s%s", args, got.out, got.err)
		}
	}
	secret := call{env: map[string]string{"REDELIVER_HTTP_AUTHORIZATION": "Bearer s3cret\nX-Evil: 1"}}
	got := secret.run(t, strings.Fields("run --broker kafka://h:1 --topic a --group g --http http://h")...).want(t, 2, "REDELIVER_HTTP_AUTHORIZATION contains a control character")
	if strings.Contains(got.out+got.err, "s3cret") {
		t.Errorf("%s%s", got.out, got.err)
	}
	// A fault elsewhere is not wrong usage.
	s := newTestKafka(t)
	s.run("run", "--topic", "nosuch", "--group", "g", "--http", "http://127.0.0.1:1").want(t, 1, "nosuch")
	call{}.run(t, "run", "--broker", "kafka://127.0.0.1:1", "--topic", "a", "--group", "g", "--http", "http://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
	s.topics("payments")
	s.run("run", "--topic", "payments", "--group", "g", "--http", "http://127.0.0.1:1", "--no-provisioning").want(t, 1, "payments.g.dlq")
}

// The log contains the dead letters in the requested format.
func TestRunLogs(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(w http.ResponseWriter, _ asked) { w.WriteHeader(http.StatusGone) })
	s.put(payments("a")...)
	h := s.handle("--log", "json", "--http", p.URL)
	s.dead(1)
	got := h.stop().want(t, 0)
	found := slices.ContainsFunc(strings.Split(got.err, "\n"), func(line string) bool {
		var l struct {
			Msg    string `json:"msg"`
			Reason string `json:"reason"`
			Error  string `json:"error"`
		}
		return json.Unmarshal([]byte(line), &l) == nil && l.Msg == "message dead-lettered" && l.Reason == "permanent" && strings.HasSuffix(l.Error, "410 Gone")
	})
	if !found {
		t.Errorf("%s", got.err)
	}
}
