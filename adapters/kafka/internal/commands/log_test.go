package commands

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/wirename"
)

func asRecord(t *testing.T, c deadletter.Command) *topiclog.Record {
	t.Helper()
	value, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return &topiclog.Record{Key: []byte(keyPrefix + c.ID), Value: value, Time: time.Now()}
}

func TestCommandLogReadsCommandsAndForgetsDeletedOnes(t *testing.T) {
	t.Parallel()
	var b log
	var given []*topiclog.Record
	for _, c := range []deadletter.Command{
		{Kind: deadletter.CommandCancel, Who: "ann", Why: "test", Everything: true},
		{Kind: deadletter.CommandRelease, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Levels: []string{"1h"}}},
	} {
		c, err := deadletter.NewCommand(c)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, asRecord(t, c))
	}
	for _, r := range append(given, given...) {
		b.apply(r)
	}
	if len(b.commands) != 2 || b.commands[0].Kind != deadletter.CommandCancel || b.refused != nil {
		t.Errorf("%+v", b)
	}
	for _, r := range given {
		b.apply(&topiclog.Record{Key: r.Key})
	}
	if len(b.commands) > 0 || b.refused != nil {
		t.Errorf("%+v", b)
	}
}

// The clocks are the sender's, the broker's and the reader's.
func TestCommandLogTrustsTheEarliestClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, at := range map[string]struct{ claim, broker, want time.Time }{
		"all agree":         {now, now, now},
		"theirs is ahead":   {now.Add(10 * time.Minute), now, now},
		"theirs is behind":  {now.Add(-time.Minute), now, now.Add(-time.Minute)},
		"the broker's, too": {now.Add(time.Hour), now.Add(time.Hour), time.Now()},
	} {
		c := deadletter.Command{ID: "7", Kind: deadletter.CommandRelease, Everything: true, Created: at.claim, Expires: now.Add(time.Hour)}
		r := asRecord(t, c)
		r.Time = at.broker
		read, err := readCommand("7", r)
		if off := read.Created.Sub(at.want); err != nil || off < 0 || off > 10*time.Second {
			t.Errorf("%s: it counts from %s, want %s: %v", name, read.Created, at.want, err)
		}
	}
}

func TestCommandLogIgnoresGarbage(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"command/": "{}", "command/7": `{"id":"8","kind":"release","everything":true}`, "command/9": `{"id":"9","kind":"shred","everything":true}`,
		"command/10": `{"id":"10","kind":"release"}`, "command/11": `{"id":"11","kind":"release","filter":{"filter":{"ids":["7"]}}}`, "command/12": "[",
		"command/13": `{"id":"13","kind":"cancel","filter":{"levels":["90s"]}}`, "command/14": `{"id":"14","kind":"cancel","filter":{"filter":{"reasons":["exhausted"]}}}`,
		"command/15": `{"id":"15","kind":"cancel","filter":{"levels":["1h"],"shards":[7]}}`, "command/16": `{"id":"16","kind":"cancel","filter":{"filter":{"error_text":"x","tenant":"acme"}}}`,
	} {
		var b log
		b.apply(&topiclog.Record{Key: []byte(key), Value: []byte(value)})
		if len(b.commands) > 0 || len(b.refused) != 1 {
			t.Errorf("%s: %+v", key, b)
		}
	}
	var b log
	for _, key := range []string{"", "seen", "progress/7/1h/0", "settled/1h/0/0/x", "release/1h"} {
		b.apply(&topiclog.Record{Key: []byte(key), Value: []byte("{}")})
	}
	if len(b.commands) > 0 || b.refused != nil {
		t.Errorf("%+v", b)
	}
}

// Unknown fields of a command are ignored, because a newer version may add some.
func TestCommandLogReadsACommandOfANewerVersion(t *testing.T) {
	t.Parallel()
	var b log
	b.apply(&topiclog.Record{Key: []byte("command/7"), Value: []byte(`{"id":"7","kind":"cancel","priority":3,"filter":{"levels":["1h"]}}`)})
	if len(b.commands) != 1 || b.refused != nil {
		t.Errorf("%+v", b)
	}
}

func FuzzCommandLog(f *testing.F) {
	f.Add("command/7", []byte(`{"id":"7","kind":"release","everything":true}`))
	f.Add("settled/1h/1/0", []byte(`{"bits":""}`))
	f.Fuzz(func(_ *testing.T, key string, value []byte) {
		var b log
		b.apply(&topiclog.Record{Key: []byte(key), Value: value})
		for i := range b.commands {
			(&Set{b.commands[i:]}).Released(time.Hour)
		}
		b.apply(&topiclog.Record{Key: []byte(key)})
	})
}

// The newest record about a pause counts. A value that was written by hand pauses too.
func TestCommandLogReadsPauses(t *testing.T) {
	t.Parallel()
	var b log
	for _, c := range []struct {
		value []byte
		want  string
	}{
		{[]byte("2026-03-04T05:06:07Z ann@host the bank is closed"), "the bank is closed"},
		{[]byte("by hand"), "by hand"},
		{[]byte{}, ""},
	} {
		b.apply(&topiclog.Record{Key: []byte(wirename.PauseKey), Value: c.value})
		if b.paused == nil || b.paused.Reason != c.want {
			t.Errorf("%q is read as %+v", c.value, b.paused)
		}
	}
	b.apply(&topiclog.Record{Key: []byte(wirename.PauseKey)})
	if b.paused != nil || b.refused != nil || b.commands != nil {
		t.Errorf("%+v", b)
	}
}
