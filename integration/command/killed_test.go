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

// killed fills the DLQ with three kinds of failures beside what lies there, replays one
// of them, kills that twice in the middle and accounts for every message: of the one
// kind each was handled, and twice at most as many as two windows; the others lie there.
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
		t.Fatalf("%v lie in %s, want %d of each kind, and %d permanent ones from before", reasons, s.dlq, each, before)
	}
	args := []string{"dlq", "replay", s.dlq, "--fingerprint", fingerprint, "--window", fmt.Sprint(window), "--rate", "4", "--reason", "it is mended", "--yes"}
	lease := []string{"--lease", "5s"}
	if strings.HasPrefix(s.url, "amqp:") { // there a connection holds the DLQ, and no lease
		lease = nil
	}
	task := s.until(each/4, append(args, lease...))
	resume := append([]string{"dlq", "resume", s.dlq, task, "--yes"}, lease...)
	s.until(each/2, resume)
	s.until(-1, resume)

	done := s.worked("never", "commit", each, nil)
	twice := 0
	for _, times := range done {
		twice += times - 1
	}
	if len(done) != each || twice > 2*window {
		t.Errorf("%d of %d were handled, and %d times too often; want all, and at most %d too many", len(done), each, twice, 2*window)
	}
	look := func() []map[string]any { return s.rows(0, "dlq", "show", s.dlq, "--limit", "1000") }
	left := look()
	for began := time.Now(); len(left) != before+2*each && time.Since(began) < patience; { // what a killed command looked at is hidden on SQS for a while
		<-time.After(betweenLooks)
		left = look()
	}
	for _, letter := range left {
		if letter["reason"] == "panic" || done[letter["id"].(string)] > 0 {
			t.Errorf("%v was replayed and lies in the DLQ still", letter["id"])
		}
	}
	if len(left) != before+2*each {
		t.Errorf("%d lie in the DLQ, want %d", len(left), before+2*each)
	}
}

// until runs redeliver until its task has replayed n messages, kills it, and returns the
// task's id; with an n of -1 it lets it end. What a killed one holds is waited for.
func (s *shop) until(n int, args []string) (task string) {
	t := s.t
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(betweenLooks)
	defer tick.Stop()
	var cmd *exec.Cmd
	var errs bytes.Buffer
	var ended chan struct{}
	var end error // of the process, once ended is closed
	begin := func() {
		errs.Reset()
		ended = make(chan struct{})
		cmd = exec.Command(filepath.Join(built, "redeliver"), args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "REDELIVER_BROKER="+s.url), &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { end = cmd.Wait(); close(ended) }()
	}
	for begin(); ; {
		for _, row := range slices.Backward(s.rows(0, "dlq", "tasks", s.dlq)) {
			if count, _ := row["counts"].(map[string]any)["replayed"].(float64); n >= 0 && row["status"] == "running" && int(count) >= n {
				task = row["id"].(string)
				_ = cmd.Process.Kill()
				<-ended
				return task
			}
		}
		select {
		case <-tick.C:
		case <-ended:
			switch held := strings.Contains(errs.String(), "is held by"); {
			case end == nil && n < 0:
				return task
			case !held:
				t.Fatalf("redeliver %s ended before it had replayed %d: %v: %s", strings.Join(args, " "), n, end, errs.String())
			}
			begin()
		case <-deadline:
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("redeliver %s had not replayed %d within %s: %s", strings.Join(args, " "), n, patience, errs.String())
		}
	}
}
