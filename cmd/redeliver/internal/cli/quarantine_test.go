package cli_test

import (
	"strings"
	"testing"
)

// A quarantined message stays, no replay sends it, and it leaves quarantine on request.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	mark := []string{"dlq", "quarantine", dlq, "--reason", "exhausted", "--note", "waits for OPS-17"}
	s.run("dlq", "quarantine", dlq, "--note", "test", "--yes").want(t, 2, "everything")
	s.run("dlq", "quarantine", dlq, "--reason", "exhausted", "--yes").want(t, 2, "--note")
	if dry := s.run(append(mark, "--dry-run", "-o", "json")...).want(t, 0).object(t); dry["quarantine"] != 3.0 || dry["purge"] != nil {
		t.Errorf("%v", dry)
	}
	if dry := s.run(append(mark, "--dry-run")...).want(t, 0); !strings.Contains(dry.out, "would quarantine  3") {
		t.Errorf("%s", dry.out)
	}
	s.with(call{terminal: true, in: strings.NewReader("n\n")}, mark...).want(t, 1)
	got := s.with(call{terminal: true, in: strings.NewReader("y\n")}, append(mark, "-o", "json")...).want(t, 0, "Quarantine 3 of 5").object(t)
	if got["kind"] != "quarantine" || got["counts"].(map[string]any)["quarantined"] != 3.0 || got["filter"] == nil {
		t.Errorf("%v", got)
	}
	if again := s.run(append(mark, "--yes", "-o", "json")...).want(t, 0).object(t); again["counts"].(map[string]any)["quarantined"] != nil {
		t.Errorf("what was marked is counted once more: %v", again)
	}
	if dry := s.run(append(mark, "--dry-run", "-o", "json")...).want(t, 0).object(t); dry["quarantine"] != nil || dry["matched"] != 3.0 {
		t.Errorf("of what was marked it would mark %v", dry)
	}
	s.with(call{terminal: true}, mark...).want(t, 0, "already quarantined")
	replay := []string{"dlq", "replay", dlq, "--reason", "exhausted", "--note", "test", "--yes", "-o", "json"}
	if dry := s.run(append(replay, "--dry-run")...).want(t, 0).object(t); dry["quarantine"] != 3.0 || dry["replay"] != nil {
		t.Errorf("%v", dry)
	}
	got = s.run(append(replay, "--quarantined")...).want(t, 0).object(t)
	if got["counts"].(map[string]any)["replayed"] != 3.0 {
		t.Errorf("%v", got)
	}
	s.records(back, 3)
	s.run("dlq", "quarantine", dlq, "--id", "nosuch", "--note", "test").want(t, 2, "--yes")
	s.with(call{terminal: true}, "dlq", "quarantine", dlq, "--id", "nosuch", "--note", "test").want(t, 0, "no message")
}
