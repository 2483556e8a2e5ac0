package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// A screen of 80 columns shows all numbers, and names that differ stay different.
func TestTopNeedsEightyColumns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	n, change, waits := int64(1234567), -1234.0, int64(4321)
	row := func(dlq string) topRow {
		return topRow{
			DLQ: dlq, Messages: &n, PerMinute: &change, Oldest: now.Add(-47 * time.Hour), Waiting: &waits, WaitingPerMinute: &change, Due: now.Add(-3 * time.Minute),
			Levels: []topLevel{{Level: "1h", Place: "x", Messages: &waits, Due: now.Add(time.Hour)}, {Place: "payments.retry\x1b[2J", Messages: &waits}},
		}
	}
	s := &topScreen{
		from: "kafka://kafka-1.example:9092", every: 2 * time.Second, at: now, levels: true, order: "name",
		rows: []topRow{row("payments-service-eu-central.billing-worker.dlq"), row("payments-service-eu-central.mailing-worker.dlq"), row("a\x1b[2J\u202eb.c.dlq")},
	}
	s.rows[0].Running = &holderRow{Task: "3f2a", Who: "ann\x1b[2J"}
	s.rows[1].Problem = "not authorized\u202e" + strings.Repeat(" to read it", 20)
	lines := s.lines(false, 80, 24)
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		`payments-…illing-worker\.dlq  1,234,567  -1,234  47h +4,321  -1,234  late 3m`, `\n  1h +4,321 +in 1h\n`, `\n  payments\.\S+\\x1b\[2J +4,321 +-\n`,
		`\n  task 3f2a by ann\\x1b\[2J\n`, `\n  not authorized\\u\{202e\} to`, `\na\\x1b\[2J\\u\{202e\}b\.c\.dlq +1,234,567`, `l levels  space pause  q quit$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	names := map[string]bool{}
	for _, line := range lines {
		if cols := len([]rune(line)); cols > 80 && !strings.HasPrefix(line, "  not authorized") { // draw cuts it
			t.Errorf("%d columns: %s", cols, line)
		}
		if strings.Contains(line, "late 3m") {
			names[strings.Fields(line)[0]] = true
		}
	}
	if len(names) != 3 {
		t.Errorf("names are alike: %v", names)
	}
	s.levels = false
	if text := strings.Join(s.lines(false, 80, 24), "\n"); strings.Contains(text, "\n  1h") {
		t.Errorf("levels:\n%s", text)
	}
	if lines := s.lines(false, 80, 8); len(lines) != 8 || !strings.Contains(lines[5], "and 2 more") { // the third DLQ has room for its name only
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
