package adaptertest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// The report of a failed test with 200 messages is short, and begins with the missing ones.
func TestFailureReportBeginsWithMissingMessages(t *testing.T) {
	t.Parallel()
	j := newJournal()
	due := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	add := func(e redeliver.Event) { j.events = append(j.events, recordedEvent{e, due.Add(time.Second)}) }
	_, ids := numberedMessages(200)
	var dlq []Message
	for i, id := range ids {
		st := redeliver.State{ID: id, Attempts: 1, Due: due}
		add(redeliver.RetryScheduled{State: st, Err: errors.New(strings.Repeat("declined ", 100))})
		if i < 20 {
			continue
		}
		add(redeliver.DeadLettered{State: st})
		if i >= 22 {
			dlq = append(dlq, Message{OwnHeaders: []driver.Header{{Name: redeliver.HeaderID, Value: id}}})
		}
	}
	for name, c := range map[string]struct {
		lines []string
		want  []string // how the first lines begin
		last  string
	}{
		"a wait for all": {
			lines: j.unended(append(ids, "never")...), last: "03:04:06.006 DeadLettered m-199",
			want: []string{"21 of 201 messages have not ended", "m-000 ran 0 times; the last event: 03:04:06.006 RetryScheduled m-000 Attempts=1 Due=03:04:05.006"},
		},
		"a wait for one": {
			lines: j.unended("never"), last: "03:04:06.006 DeadLettered m-199",
			want: []string{"1 of 1 messages have not ended", "never ran 0 times; there is no event"},
		},
		"the DLQ": {
			lines: j.missedIn(append(dlq, dlq[3])), last: "m-021 ran 0 times; the last event: 03:04:06.006 DeadLettered m-021",
			want: []string{"180 messages were reported as dead-lettered; 2 of them are not in the DLQ, 1 are there twice: m-025", "m-020"},
		},
		"one message": {lines: j.historyOf("m-030"), last: "03:04:06.006 DeadLettered m-030", want: []string{"03:04:06.006 RetryScheduled m-030"}},
	} {
		if len(c.lines) > 30 {
			t.Errorf("%s: %d lines, want at most 30", name, len(c.lines))
		}
		for i, line := range c.lines {
			if i < len(c.want) && !strings.HasPrefix(line, c.want[i]) {
				t.Errorf("%s: line %d is %q, want that it begins with %q", name, i+1, line, c.want[i])
			}
			if len(line) > 300 {
				t.Errorf("%s: line %d has %d bytes, want at most 300", name, i+1, len(line))
			}
		}
		if last := fmt.Sprint(c.lines[len(c.lines)-1]); !strings.HasPrefix(last, c.last) {
			t.Errorf("%s: the last line is %q, want that it begins with %q", name, last, c.last)
		}
	}
}
