// Package command_test runs the command redeliver as an operator would: the program itself, on real brokers, with a DLQ
// that a service has filled.
package command_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/programs"
)

// maxWait bounds each wait. No result depends on how long it takes.
const maxWait = 90 * time.Second

// betweenLooks is the interval between calls of the command, each of which is a process.
const betweenLooks = 250 * time.Millisecond

// maxBinary bounds the size of the command, in bytes.
const maxBinary = 44 << 20

var built string // the directory of the programs

// atOnce is the number of tests that run in parallel unless go test sets it. They mostly wait, for half a minute until
// settled messages are given back, so the number of processors does not matter.
const atOnce = "8"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if built, err = programs.Build("", "./cmd/redeliver", "./examples/worker"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

func TestTheBinaryIsSmallEnough(t *testing.T) {
	info, err := os.Stat(filepath.Join(built, "redeliver"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("report: the command is %.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxBinary {
		t.Errorf("the command is %d bytes, more than %d", info.Size(), maxBinary)
	}
}

func name() string { return "cmd-" + strings.ToLower(rand.Text()[:10]) }

// doneOrPartly means exit code 0 or 5.
const doneOrPartly = -1

// command runs redeliver, requires this exit code and returns stdout.
func (s *shop) command(code int, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(built, "redeliver"), args...)
	cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code && (code != doneOrPartly || got != 0 && got != 5) {
		s.t.Fatalf("redeliver %s: exit code %d, want %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, code, out.String(), errs.String())
	}
	return out.String()
}

// rows parses the JSON that the command prints.
func (s *shop) rows(code int, args ...string) (all []map[string]any) {
	s.t.Helper()
	out := s.command(code, append(args, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return all
}

// work runs the worker until it has written n lines of this event, and ends it.
func (s *shop) work(fail, event string, n int, then func()) (ids map[string]bool) {
	s.t.Helper()
	ids = make(map[string]bool)
	for id := range s.worked(fail, event, n, then) {
		ids[id] = true
	}
	return ids
}

// worked is work that returns the number of such lines for each message.
func (s *shop) worked(fail, event string, n int, then func()) map[string]int {
	s.t.Helper()
	for tries := 3; ; tries-- {
		ids, said, err := s.worker(fail, event, n, then)
		if err == nil && len(ids) >= n {
			return ids
		}
		// If a broker stalls for longer than a client waits, a supervisor would start the service again.
		if tries == 1 || len(ids) > 0 || !strings.Contains(said, ": connecting to ") {
			s.t.Fatalf("%d of %d %s: %v: %s", len(ids), n, event, err, said)
		}
		then = nil // then was called before
	}
}

// worker runs the worker until it has written n such lines. It also returns stderr.
func (s *shop) worker(fail, event string, n int, then func()) (ids map[string]int, said string, err error) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(built, "worker"), "--broker", s.url, "--topic", s.topic, "--group", s.group, "--retries", "0", "--no-outage", "--fail", fail)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	// If the test would wait forever, the worker is killed, which ends its lines.
	late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if then != nil {
		then()
	}
	ids = make(map[string]int)
	lines := bufio.NewScanner(out)
	for len(ids) < n && lines.Scan() {
		var e struct {
			Event string `json:"event"`
			ID    string `json:"id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Event == event {
			ids[e.ID]++
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	for lines.Scan() {
	}
	err = cmd.Wait()
	return ids, errs.String(), err
}

// day does the work of an operator with dead letters: find the cause, fix the service, replay one message as a test,
// then the rest.
func (s *shop) day() {
	t := s.t
	t.Helper()
	const n = 5
	dead := s.work("permanent", "dead_letter", n, func() {
		for i := range n {
			s.send(fmt.Sprintf("order %d", i))
		}
	})
	causes := s.rows(0, "dlq", "groups", s.dlq)
	if len(causes) != 1 || causes[0]["count"] != float64(n) || causes[0]["reason"] != "permanent" {
		t.Fatalf("causes: %v", causes)
	}
	shown := s.rows(0, append([]string{"dlq", "show"}, s.whose...)...)
	if len(shown) != n || !dead[shown[0]["id"].(string)] || !strings.HasPrefix(shown[0]["body_text"].(string), "order ") {
		t.Fatalf("shown: %v", shown)
	}
	s.command(3, "dlq", "check", s.dlq)
	s.command(0, "dlq", "replay", s.dlq, "--dry-run")
	s.command(2, "dlq", "replay", s.dlq, "--note", "test")
	exported := filepath.Join(t.TempDir(), "dead.jsonl")
	s.command(0, "dlq", "export", s.dlq, "--file", exported)
	s.command(0, "dlq", "replay", s.dlq, "--id", shown[0]["id"].(string), "--note", "to try it", "--yes")
	s.command(0, "dlq", "replay", s.dlq, "--fingerprint", causes[0]["fingerprint"].(string), "--canary", "1,2", "--watch", "500ms", "--rate", "100", "--note", "it is fixed", "--yes")
	done := s.work("never", "commit", n, nil)
	for id := range dead {
		if !done[id] {
			t.Errorf("%s was not handled", id)
		}
	}
	s.command(0, "dlq", "check", s.dlq)
	s.command(0, "dlq", "import", s.dlq, "--file", exported, "--note", "to purge them", "--yes")
	s.command(0, "dlq", "purge", s.dlq, "--all", "--expect", "5", "--note", "test", "--yes")
	s.command(0, "dlq", "check", s.dlq)
	if tasks := s.rows(0, "dlq", "tasks", s.dlq); len(tasks) != 4 || tasks[1]["note"] != "it is fixed" {
		t.Errorf("tasks: %v", tasks)
	}
}

// interrupt sends SIGINT while a replay watches its canary. The replay is paused and then cancelled. Messages that it
// had not sent stay.
func (s *shop) interrupt() {
	t := s.t
	t.Helper()
	dead := s.work("permanent", "dead_letter", 2, func() {
		s.send("one")
		s.send("two")
	})
	args := []string{"dlq", "replay", s.dlq, "--canary", "1", "--watch", "1h", "--note", "test", "--yes", "--output", "json"}
	if strings.HasPrefix(s.url, "sqs") { // messages in hand stay hidden for that long
		args = append(args, "--lease", "5s")
	}
	cmd := exec.Command(filepath.Join(built, "redeliver"), args...)
	cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	tick := time.NewTicker(betweenLooks)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for sent := false; !sent; {
		for _, task := range s.rows(0, "dlq", "tasks", s.dlq) {
			counts := task["counts"].(map[string]any)
			sent = sent || task["status"] == "running" && counts["replayed"] == 1.0
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the canary was not sent within %s: %s", maxWait, errs.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is checked instead
	var task struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err := json.Unmarshal(out.Bytes(), &task); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if code := cmd.ProcessState.ExitCode(); code != 130 || task.Status != "paused" || !strings.Contains(errs.String(), "redeliver dlq resume "+s.dlq+" "+task.ID) {
		t.Fatalf("exit code %d, want 130; %s%s", code, out.String(), errs.String())
	}
	s.command(0, "dlq", "cancel", s.dlq, task.ID)
	done := s.work("never", "commit", 1, nil)
	// On SQS the messages of an interrupted receive are hidden for the duration of the lease.
	left := s.rows(0, "dlq", "show", s.dlq)
	for began := time.Now(); len(left) == 0 && time.Since(began) < maxWait; {
		<-tick.C
		left = s.rows(0, "dlq", "show", s.dlq)
	}
	if len(left) != 1 || len(done) != 1 || done[left[0]["id"].(string)] || !dead[left[0]["id"].(string)] {
		t.Errorf("%v were handled and %v are left", done, left)
	}
}

// listed looks for the DLQ, in which one message is left, among all DLQs of the broker. Those of other tests may
// disappear meanwhile, which gives exit code 5.
func (s *shop) listed(group string, flags ...string) {
	s.t.Helper()
	for _, row := range s.rows(doneOrPartly, append([]string{"dlq", "list"}, flags...)...) {
		if row["dlq"] == s.dlq && row["origin"] == s.topic && row["group"] == group && row["messages"] == 1.0 {
			return
		}
	}
	s.t.Errorf("%s is not listed", s.dlq)
}

// plan requires the same fields with the same values for every broker.
func (s *shop) plan() {
	s.t.Helper()
	var p struct {
		Broker string `json:"broker"`
		Origin string `json:"origin"`
		Places []struct {
			Kind string `json:"kind"`
		} `json:"places"`
		Delays []struct {
			After     string `json:"after"`
			Mechanism string `json:"mechanism"`
		} `json:"delays"`
		LongestWait string `json:"longest_wait"`
	}
	out := s.command(0, "plan", "--topic", s.topic, "--group", s.group, "--retries", "3", "--backoff", "steps:10s,1m,20m", "--output", "json")
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		s.t.Fatal(err)
	}
	scheme, _, _ := strings.Cut(s.url, ":")
	want := map[string]string{"kafka": "kafka", "amqp": "rabbitmq", "sqs+http": "sqs"}[scheme]
	dlqs := 0
	for _, place := range p.Places {
		if place.Kind == "dlq" {
			dlqs++
		}
	}
	if p.Broker != want || p.Origin != s.topic || dlqs != 1 || len(p.Delays) != 3 || p.Delays[2].After != "20m0s" || p.Delays[2].Mechanism == "" || p.LongestWait == "" {
		s.t.Errorf("%s", out)
	}
	if text := s.command(0, "plan", "--topic", s.topic, "--group", s.group); !strings.Contains(text, "retry  after") {
		s.t.Errorf("%s", text)
	}
}

// The work of an operator on each broker.
func TestAnOperatorReplaysDeadLetters(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(_ *testing.T, s *shop) {
		s.plan()
		s.day()
		s.interrupt()
		if s.flags != nil {
			s.command(2, "dlq", "list")
		}
		s.listed(s.known, s.flags...)
		s.killed()
	})
}
