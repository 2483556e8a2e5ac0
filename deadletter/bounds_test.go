package deadletter_test

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
)

// The bound of a window includes keys and headers, and not only bodies.
func TestAWindowIsBoundedByKeysAndHeaders(t *testing.T) {
	big := make([]byte, 20<<20) // one array for all, because only its length counts
	for name, one := range map[string]deadletter.Message{
		"body":       {Body: big},
		"key":        {Key: big},
		"header":     {Headers: []deadletter.Header{{Name: "h", Value: big}}},
		"foreign":    {Foreign: []deadletter.Header{{Name: "h", Value: big}}},
		"properties": {Properties: []deadletter.Header{{Name: "h", Value: big}}},
	} {
		h := newFakeDLQ(4)
		for _, m := range h.messages {
			m.Body, m.Key, m.Headers, m.Foreign, m.Properties = one.Body, one.Key, one.Headers, one.Foreign, one.Properties
		}
		if _, err := deadletter.Replay(t.Context(), h, deadletter.ReplayOptions{Who: "ann", Why: "a test"}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.sentSizes, []int{2, 2}) {
			t.Errorf("%s: windows of %v were sent, want two of two", name, h.sentSizes)
		}
	}
}

// A dry run refuses the same requests as a run, but needs no Who.
func TestInvalidRateIsRefusedByRunAndDryRun(t *testing.T) {
	h := newFakeDLQ(1)
	for name, r := range map[string]deadletter.ReplayOptions{
		"NaN": {Rate: math.NaN()}, "Inf": {Rate: math.Inf(1)}, "-Inf": {Rate: math.Inf(-1)}, "-1": {Rate: -1},
		"window": {Window: -1}, "canary": {Canary: []int{1, 0}}, "watch": {Watch: -1}, "replays": {MaxReplays: -1},
		"filter": {Filter: deadletter.Filter{After: time.Unix(1, 0), Before: time.Unix(1, 0)}},
	} {
		if _, err := deadletter.DryRun(t.Context(), h, r); err == nil {
			t.Errorf("%s: a dry run accepts it", name)
		}
		r.Who, r.Why = "ann", "a test"
		if _, err := deadletter.Replay(t.Context(), h, r); err == nil {
			t.Errorf("%s: it was run", name)
		}
	}
	if f, err := deadletter.DryRun(t.Context(), h, deadletter.ReplayOptions{}); err != nil || f.Replay != 1 {
		t.Errorf("%+v: %v", f, err)
	}
}

// A message that names another group or origin can be exported and imported like any other, and is still refused
// afterwards.
func TestAnExportOfAMismatchIsImported(t *testing.T) {
	for name, m := range map[string]*deadletter.Message{
		"group":   read(nil, driver.AppendStateHeaders((redeliver.State{ID: "a", Group: "mail", Origin: "orders", Attempts: 2}), nil)...),
		"origin":  read(nil, driver.AppendStateHeaders((redeliver.State{ID: "a", Group: "billing", Origin: "refunds", Attempts: 2}), nil)...),
		"foreign": read([]deadletter.Header{{Name: "topic_poisoned", Value: []byte("refunds")}}),
		"SQS":     read([]deadletter.Header{{Name: "DeadLetterQueueSourceArn", Value: []byte("arn:aws:sqs:eu-west-1:1:refunds")}}),
	} {
		h := newFakeDLQ(0)
		m.Position = "0/1"
		h.messages = []*deadletter.Message{m}
		var file bytes.Buffer
		if _, err := deadletter.Export(t.Context(), h, deadletter.Filter{}, &file); err != nil {
			t.Fatal(err)
		}
		if _, err := deadletter.Import(t.Context(), h, &file, deadletter.ImportOptions{Who: "ann", Why: "a test"}); err != nil || len(h.messages) != 2 {
			t.Errorf("%s: it cannot be imported: %v", name, err)
			continue
		}
		// An adapter writes the state as headers, and reads it again.
		again := read(nil, driver.AppendStateHeaders(h.messages[1].State, nil)...)
		if back := h.messages[1]; m.Mismatch == "" || back.Mismatch != m.Mismatch || again.Mismatch != m.Mismatch || back.State != m.State {
			t.Errorf("%s: it was %q with %+v, is %q with %+v, and is read as %q", name, m.Mismatch, m.State, back.Mismatch, back.State, again.Mismatch)
		}
	}
}

// redeliver's own DLQ trusts the last block of headers. An imported message with forged headers must get a block of
// redeliver's after them.
func TestAnImportOfForgedHeadersIsNotTrusted(t *testing.T) {
	m := read([]deadletter.Header{{Name: "redeliver-attempt", Value: []byte("1")}, {Name: "redeliver-replays", Value: []byte("1000")}, {Name: "reason_poisoned", Value: []byte("fraud")}})
	if m.Writer != deadletter.WriterWatermill || m.State.Replays != 0 || len(m.Findings) != 2 {
		t.Fatalf("read as %+v", m)
	}
	h := newFakeDLQ(0)
	h.messages = []*deadletter.Message{m}
	var file bytes.Buffer
	if _, err := deadletter.Export(t.Context(), h, deadletter.Filter{}, &file); err != nil {
		t.Fatal(err)
	}
	if _, err := deadletter.Import(t.Context(), h, &file, deadletter.ImportOptions{Who: "ann", Why: "a test"}); err != nil || len(h.messages) != 2 {
		t.Fatal(err)
	}
	if back := h.messages[1]; back.Writer != deadletter.WriterRedeliver || back.State.Error != "fraud" || back.State.Replays != 0 || len(back.Headers) != 2 || len(back.Foreign) > 0 {
		t.Errorf("imported as %+v", back)
	}
}

func TestLockedHeadersCannotBeEdited(t *testing.T) {
	for name, locked := range map[string]bool{
		"redeliver-attempt": true, "Redeliver-Group": true, "_watermill_message_uuid": true, "_WATERMILL_x": true, "tenant": false, "redelivered": false, "": false,
	} {
		if deadletter.LockedHeader(name) != locked {
			t.Errorf("%q is locked: %v", name, !locked)
		}
		h := newFakeDLQ(1)
		c := deadletter.EditOptions{Who: "ann", Why: "a test", Position: "m-0000", Set: []deadletter.Header{{Name: name, Value: []byte("x")}}}
		if _, err := deadletter.Edit(t.Context(), h, c); (err != nil) != (locked || name == "") {
			t.Errorf("%q is set: %v", name, err)
		}
	}
}

func TestFailedIsTheLatestFailureOrElseTheTime(t *testing.T) {
	written, failed := time.Unix(1, 0), time.Unix(2, 0)
	m := deadletter.Message{Time: written}
	if got := m.Failed(); !got.Equal(written) {
		t.Errorf("it failed at %s", got)
	}
	m.State.LastFailed = failed
	if got := m.Failed(); !got.Equal(failed) {
		t.Errorf("it failed at %s", got)
	}
}
