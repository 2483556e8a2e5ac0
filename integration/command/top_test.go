package command_test

import (
	"fmt"
	"strings"
	"testing"
)

// On every broker top counts the DLQ's messages, and those that wait on each level. SQS has no levels.
func TestTop(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, s *shop) {
		run := s.sidecar("--retries", "1", "--backoff", "fixed:1h", "--exec", "--", "sh", "-c", "grep -q bad && exit 65; exit 1")
		for _, body := range []string{"bad", "waits", "waits, too"} {
			s.send(body)
		}
		level, args := "1h", append([]string{"top", "--count", "1"}, s.flags...)
		if strings.HasPrefix(s.url, "sqs") {
			level = ""
		}
		var rows []map[string]any
		awaitEvery(t, betweenLooks, func() string { return fmt.Sprint(rows) }, func() bool {
			rows = s.rows(0, args...)
			for _, row := range rows {
				levels, _ := row["levels"].([]any)
				if row["dlq"] != s.dlq || row["messages"] != 1.0 || row["waiting"] != 2.0 || len(levels) != 1 {
					continue
				}
				at, _ := levels[0].(map[string]any)
				return at["messages"] == 2.0 && (at["level"] == level || level == "" && at["level"] == nil)
			}
			return false
		})
		run.end()
		if text := s.command(0, append(args, "--levels")...); !strings.Contains(text, s.dlq) || level != "" && !strings.Contains(text, "\n  "+level+" ") {
			t.Errorf("%s", text)
		}
	})
}
