package adaptertest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// A failed test logs a short report of its journal that begins with the missing messages, because CI logs are often
// truncated.
const (
	maxReported = 15 // messages
	maxEvents   = 10
)

const clock = "15:04:05.000"

// logLines logs each line separately.
func logLines(t *testing.T, lines []string) {
	t.Helper()
	for _, line := range lines {
		t.Log(line)
	}
}

// unended reports which of some messages, or of all known ones, have not ended, the last event of each, and the last
// events of all.
func (j *journal) unended(ids ...string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	ended, known := make(map[string]bool), make(map[string]bool)
	for _, e := range j.events {
		id := idOf(e.Event)
		known[id] = id != ""
		switch e.Event.(type) {
		case redeliver.Committed, redeliver.DeadLettered, redeliver.Discarded:
			ended[id] = true
		}
	}
	for _, a := range j.attempts {
		known[a.State.ID] = true
	}
	if delete(known, ""); len(ids) == 0 {
		ids = slices.Sorted(maps.Keys(known))
	}
	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return ended[id] })
	lines = append(lines, fmt.Sprintf("%d of %d messages have not ended", len(missing), len(ids)))
	lines = append(lines, j.lastLocked(missing)...)
	lines = append(lines, fmt.Sprintf("the last of %d events:", len(j.events)))
	for _, e := range j.events[max(0, len(j.events)-maxEvents):] {
		lines = append(lines, e.String())
	}
	return lines
}

// lastLocked returns the last event of each message.
func (j *journal) lastLocked(ids []string) (lines []string) {
	for i, id := range ids {
		if i == maxReported {
			return append(lines, fmt.Sprintf("and %d more: %.200s", len(ids)-i, strings.Join(ids[i:], " ")))
		}
		last := "there is no event"
		for _, e := range slices.Backward(j.events) {
			if idOf(e.Event) == id {
				last = "the last event: " + e.String()
				break
			}
		}
		runs := 0
		for _, a := range j.attempts {
			if a.State.ID == id {
				runs++
			}
		}
		lines = append(lines, fmt.Sprintf("%s ran %d times; %s", id, runs, last))
	}
	return lines
}

// missedIn reports messages that were reported as dead-lettered but are not in dlq, and those that are there twice.
func (j *journal) missedIn(dlq []Message) []string {
	_, dead := j.ended()
	var twice []string
	found := make(map[string]bool)
	for _, m := range dlq {
		id := m.ID
		for _, h := range m.OwnHeaders {
			if h.Name == redeliver.HeaderID {
				id = h.Value
			}
		}
		if found[id] {
			twice = append(twice, id)
		}
		found[id] = true
	}
	missing := slices.DeleteFunc(slices.Sorted(maps.Keys(dead)), func(id string) bool { return found[id] })
	sum := fmt.Sprintf("%d messages were reported as dead-lettered; %d of them are not in the DLQ, %d are there twice: %.200s", len(dead), len(missing),
		len(twice), strings.Join(twice, " "))
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string{sum}, j.lastLocked(missing)...)
}

// historyOf returns the last events of one message, and its attempts.
func (j *journal) historyOf(id string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var own []recordedEvent
	for _, e := range j.events {
		if idOf(e.Event) == id {
			own = append(own, e)
		}
	}
	for _, e := range own[max(0, len(own)-2*maxEvents):] {
		lines = append(lines, e.String())
	}
	for _, a := range j.attempts {
		if a.State.ID == id {
			lines = append(lines, fmt.Sprintf("attempt %d of %s from %s to %s", a.State.Attempt(), id, a.Began.Format(clock), a.Ended.Format(clock)))
		}
	}
	return lines
}

// String formats the event on one line.
func (e recordedEvent) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.at.Format(clock), strings.TrimPrefix(fmt.Sprintf("%T", e.Event), "redeliver."))
	v := reflect.ValueOf(e.Event)
	for i := range v.NumField() {
		switch f := v.Field(i).Interface().(type) {
		case redeliver.State:
			fmt.Fprintf(&b, " %s Attempts=%d", f.ID, f.Attempts)
			if !f.Due.IsZero() {
				fmt.Fprintf(&b, " Due=%s", f.Due.Format(clock))
			}
		case time.Time:
			fmt.Fprintf(&b, " %s=%s", v.Type().Field(i).Name, f.Format(clock))
		case nil:
		default:
			fmt.Fprintf(&b, " %s=%.80s", v.Type().Field(i).Name, fmt.Sprint(f))
		}
	}
	return b.String()
}

// idOf returns the id of the message that an event is about, or "".
func idOf(e redeliver.Event) string {
	if v := reflect.ValueOf(e).FieldByName("State"); v.IsValid() {
		if st, ok := reflect.TypeAssert[redeliver.State](v); ok {
			return st.ID
		}
	}
	return ""
}
