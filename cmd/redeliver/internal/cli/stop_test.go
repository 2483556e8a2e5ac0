package cli_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Ctrl-C during a write pauses a replay and exits with 130, and resume sends the rest. Outstanding writes are finished
// first. A message is duplicated only if that took longer than the runner waits.
func TestInterruptedReplayIsResumed(t *testing.T) {
	t.Parallel()
	const n, window = 600, 10
	s := newTestKafka(t)
	recs := make([]*kgo.Record, n)
	for i := range recs {
		recs[i] = dead(i, int32(i%2), declined)
	}
	s.put(recs...)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var writes atomic.Int32
	var stopped time.Time // read when the command has ended
	var slow atomic.Bool
	slow.Store(true)
	s.onWrite(func(topic string) {
		if topic != back {
			return
		}
		if writes.Add(1) == 8 {
			stopped = time.Now()
			interrupt()
		}
		if slow.Load() { // the replay must not finish before it notices the pause
			<-time.After(100 * time.Millisecond)
		}
	})
	results := filepath.Join(t.TempDir(), "results.jsonl")
	s.with(call{ctx: ctx}, "dlq", "replay", dlq, "--note", "test", "--window", strconv.Itoa(window), "--results", results, "--yes").
		want(t, 130, "pausing task", "is paused; continue with: redeliver dlq resume "+dlq)
	took := time.Since(stopped)
	if done := lines(t, results); done == 0 || done >= n {
		t.Fatalf("%d of %d were replayed before the interrupt", done, n)
	}
	task := s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t)[0]
	if task["status"] != "paused" {
		t.Errorf("the task is %v", task["status"])
	}
	slow.Store(false)
	last := s.run("dlq", "resume", dlq, task["id"].(string), "--results", results, "--yes", "-o", "json").want(t, 0).object(t)
	if c := last["counts"].(map[string]any)["replayed"]; c != float64(n) || lines(t, results) != n {
		t.Errorf("%v are counted and %d reported, want %d", c, lines(t, results), n)
	}
	sent := int(s.written(back))
	if seen := s.ids(back, sent); len(seen) != n || sent > n+window {
		t.Errorf("%d messages of %d are on the retry topic, in %d records; at most %d may be there twice", len(seen), n, sent, window)
	}
	if took < 10*time.Second && sent != n {
		t.Errorf("it was paused within %s, and %d messages are there twice", took, sent-n)
	}
	t.Logf("report: %d are there twice; paused within %s: %v", sent-n, took, task["detail"])
	s.run("dlq", "check", dlq).want(t, 0)
}

// Before the task has started, there is nothing to pause.
func TestInterruptedBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, args := range []string{"replay --note test --yes", "groups", "purge --all --note test --yes"} {
		got := s.with(call{ctx: ctx}, append([]string{"dlq"}, append(strings.Fields(args), dlq)...)...).want(t, 130)
		if got.out != "" {
			t.Errorf("%s: stdout has %q", args, got.out)
		}
	}
	if tasks := s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t); len(tasks) != 0 {
		t.Errorf("%v", tasks)
	}
}

// await waits until ok returns true.
func (s *testKafka) await(what string, ok func() bool) {
	s.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("not within %s: %s", maxWait, what)
		}
	}
}

// lines returns the number of lines of a file, 0 if it does not exist.
func lines(t *testing.T, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// Of two concurrent runners, the second is refused with the name of the first.
func TestASecondRunnerIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	results := filepath.Join(t.TempDir(), "results.jsonl")
	ended := make(chan ending, 1)
	go func() {
		ended <- call{env: map[string]string{"REDELIVER_WHO": "bob@ops-2"}}.run(t, "dlq", "replay", dlq, "--canary", "1", "--watch", "10m", "--note", "test",
			"--results", results, "--yes", "--broker", s.url)
	}()
	s.await("the first runs", func() bool { return lines(t, results) > 0 })
	s.run("dlq", "purge", dlq, "--all", "--note", "test", "--yes").want(t, 1, "held by bob@ops-2")
	row := s.run("dlq", "list", "-o", "json").want(t, 0).objects(t)[0]
	running, ok := row["running"].(map[string]any)
	if !ok || running["who"] != "bob@ops-2" {
		t.Fatalf("%v", row)
	}
	s.run("dlq", "pause", dlq, running["task"].(string)).want(t, 0)
	(<-ended).want(t, 5, "paused")
	s.run("dlq", "pause", dlq, "nosuch").want(t, 1, "no such task")
}
