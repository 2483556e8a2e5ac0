package cli_test

import (
	"strings"
	"testing"
)

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	of := []string{"--topic", "orders", "--group", "billing", "--output", "json"}
	pausedFinding := func() string {
		row := s.run(append([]string{"doctor"}, of...)...).want(t, 3).object(t) // this Kafka has other problems
		for _, f := range row["findings"].([]any) {
			if f := f.(map[string]any); f["kind"] == "paused" {
				return f["text"].(string)
			}
		}
		return ""
	}
	if got := s.run(append([]string{"resume"}, of...)...).want(t, 0).object(t); got["paused"] != false {
		t.Errorf("resuming without a pause: %v", got)
	}
	got := s.run(append([]string{"pause", "--reason", "the bank\nis closed"}, of...)...).want(t, 0).object(t)
	if got["paused"] != true || got["broker"] != "kafka" || got["group"] != "billing" || got["reason"] != "the bank is closed" || got["at"] == nil || got["by"] != "ann@ops-1" {
		t.Errorf("paused: %v", got)
	}
	if text := pausedFinding(); !strings.Contains(text, "the bank is closed") || !strings.Contains(text, got["by"].(string)) {
		t.Errorf("doctor says %q", text)
	}
	if got = s.run(append([]string{"pause", "--new-only", "--reason", "closing soon"}, of...)...).want(t, 0).object(t); got["new_only"] != true || got["reason"] != "closing soon" {
		t.Errorf("paused for new messages: %v", got)
	}
	if text := pausedFinding(); !strings.Contains(text, "new messages only: closing soon") {
		t.Errorf("doctor says %q in a pause of new messages", text)
	}
	table := s.run("pause", "--note", "still closed", "--who", "bob", "--topic", "orders", "--group", "billing").want(t, 0)
	if !strings.Contains(table.out, "still closed") || !strings.Contains(table.out, "bob") {
		t.Errorf("the table lacks who or why:\n%s", table.out)
	}
	s.run(append([]string{"resume"}, of...)...).want(t, 0)
	if text := pausedFinding(); text != "" {
		t.Errorf("doctor says %q after the end of the pause", text)
	}
	s.run(append([]string{"pause"}, of...)...).want(t, 2, "--note")
	s.run("pause", "--topic", "orders", "--reason", "x").want(t, 2, "--group")
	s.run("resume", "--group", "billing").want(t, 2, "--topic")
	s.run("pause", "--topic", "nosuch", "--group", "billing", "--reason", "x").want(t, 1, "has never subscribed")
}
