package command_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// killed adds three kinds of failures to the DLQ and replays one of them. It kills the replay twice and accounts for
// every message. Each message of that kind was handled, and at most two windows of them twice. The others are still in
// the DLQ.
func (s *shop) killed() {
	t := s.t
	t.Helper()
	const (
		each   = 24
		window = 4
	)
	before := len(s.rows(0, "dlq", "show", s.dlq, "--limit", "1000"))
	kinds := []string{"permanent", "panic", "always"}
	s.work("header:rule", "dead_letter", each*len(kinds), func() {
		for i := range each {
			for _, kind := range kinds {
				s.send(fmt.Sprintf("%s %d", kind, i), "rule="+kind)
			}
		}
	})
	fingerprint := ""
	reasons := make(map[string]any)
	for _, group := range s.rows(0, "dlq", "groups", s.dlq) {
		reasons[group["reason"].(string)] = group["count"]
		if group["reason"] == "panic" {
			fingerprint = group["fingerprint"].(string)
		}
	}
	if reasons["panic"] != float64(each) || reasons["exhausted"] != float64(each) || reasons["permanent"] != float64(each+before) {
		t.Fatalf("%v are in %s, want %d of each kind, and %d earlier permanent ones", reasons, s.dlq, each, before)
	}
	r := &replay{shop: s, why: "to kill it", results: filepath.Join(t.TempDir(), "results.jsonl")}
	r.args = []string{"dlq", "replay", s.dlq, "--fingerprint", fingerprint, "--window", fmt.Sprint(window), "--rate", "3", "--note", r.why}
	r.until(each / 6)
	r.until(each / 3)
	r.until(-1)

	done := s.worked("never", "commit", each, nil)
	twice := 0
	for _, times := range done {
		twice += times - 1
	}
	if len(done) != each || twice > r.cut*window {
		t.Errorf("%d of %d were handled, and %d times too often; want all, and at most %d too many", len(done), each, twice, r.cut*window)
	}
	look := func() []map[string]any { return s.rows(0, "dlq", "show", s.dlq, "--limit", "1000") }
	left := look()
	// SQS hides the messages of a killed command.
	for began := time.Now(); len(left) != before+2*each && time.Since(began) < maxWait; {
		<-time.After(betweenLooks)
		left = look()
	}
	for _, letter := range left {
		if letter["reason"] == "panic" || done[letter["id"].(string)] > 0 {
			t.Errorf("%v was replayed and is still in the DLQ", letter["id"])
		}
	}
	if len(left) != before+2*each {
		t.Errorf("%d are in the DLQ, want %d", len(left), before+2*each)
	}
}

// replay is a task that is killed in the middle.
type replay struct {
	*shop

	why     string   // a reason that identifies it
	results string   // a file with a line for each replayed message
	args    []string // of the command that begins or resumes it
	cut     int      // how often it was interrupted, each time with at most a window of duplicates
}

// until runs the task until it has replayed n messages, and kills it. If n is -1, it waits for the end of the task. It
// waits for the claim of a killed runner. A runner that was paused for longer than its claim has lost it, and ends as
// if killed.
func (r *replay) until(n int) {
	t := r.t
	t.Helper()
	deadline := time.After(maxWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var cmd *exec.Cmd
	var errs bytes.Buffer
	var ended chan struct{}
	var end error // of the process; valid after ended is closed
	begin := func() {
		errs.Reset()
		ended = make(chan struct{})
		args := append(slices.Clone(r.args), "--results", r.results, "--yes")
		if !strings.HasPrefix(r.url, "amqp:") { // there a connection holds the DLQ, and no lease
			args = append(args, "--lease", "5s")
		}
		cmd = exec.Command(filepath.Join(built, "redeliver"), args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "REDELIVER_BROKER="+r.url), &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { end = cmd.Wait(); close(ended) }()
	}
	for begin(); ; {
		text, err := os.ReadFile(r.results)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if n >= 0 && bytes.Count(text, []byte("\n")) >= n {
			_ = cmd.Process.Kill()
			<-ended
			if recorded := r.next(); recorded < n || end == nil {
				t.Fatalf("redeliver %s: %v when it was killed, and %d are recorded, want %d: %s", strings.Join(cmd.Args, " "), end, recorded, n, errs.String())
			}
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			switch said := errs.String(); {
			case end == nil && n < 0:
				return
			case strings.Contains(said, "the claim on the DLQ was lost"):
				r.next()
			case !strings.Contains(said, "is held by"):
				t.Fatalf("redeliver %s ended before it had replayed %d: %v: %s", strings.Join(cmd.Args, " "), n, end, said)
			}
			begin()
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("redeliver %s had not replayed %d within %s: %s", strings.Join(cmd.Args, " "), n, maxWait, errs.String())
		}
	}
}

// next makes the next command resume the interrupted task, and returns how many messages the task has recorded as
// replayed. A task that lost its claim at once has no record, and begins anew.
func (r *replay) next() (recorded int) {
	r.t.Helper()
	r.cut++
	for _, task := range r.rows(0, "dlq", "tasks", r.dlq) {
		if task["note"] == r.why {
			r.args = []string{"dlq", "resume", r.dlq, task["id"].(string)}
			count, _ := task["counts"].(map[string]any)["replayed"].(float64)
			recorded = int(count)
		}
	}
	return recorded
}
