package kafka

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

func written(t *testing.T, key string, v any) stateEntry {
	t.Helper()
	e, err := jsonEntry(key, v)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestABookReadsWhatWasWrittenAndForgetsWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	at := waitPlace{90 * time.Second, 3}
	cmd, err := deadletter.NewCommand(deadletter.Command{Kind: deadletter.CancelWaiting, Who: "ann", Why: "test", Everything: true})
	if err != nil {
		t.Fatal(err)
	}
	settled := make(blocks)
	for _, offset := range []int64{0, 7, 8191, 8192, 100_000} {
		settled.set("a session", offset, 1000+offset)
	}
	b := newBook()
	asked, err := commandEntry(&cmd)
	if err != nil {
		t.Fatal(err)
	}
	entries := []stateEntry{asked, written(t, progressKey(cmd.ID, at), progress{Cancelled: 7, Walked: true})}
	for n, sessions := range settled {
		for session, one := range sessions {
			entries = append(entries, written(t, blockKey(at, blockRef{n, session}), one))
		}
	}
	for _, e := range entries {
		b.apply([]byte(e.key), e.value)
	}
	if b.strange > 0 || len(b.commands) != 1 || b.progress[cmd.ID][at].Cancelled != 7 {
		t.Errorf("%+v", b)
	}
	read := b.settled[at]
	if got := read.count(0, 1<<40); got != 5 {
		t.Errorf("%d are settled", got)
	}
	if got := read.count(1, 8192); got != 2 {
		t.Errorf("%d of 1 to 8191 are settled", got)
	}
	for _, at := range []struct {
		offset, when int64
		has          bool
	}{{0, 1000, true}, {8191, 9191, true}, {8191, 9192, false}, {8191, 999, false}, {1, 1001, false}, {100_000, 101_000, true}, {1 << 40, 5, false}} {
		if got := read.has(at.offset, at.when); got != at.has {
			t.Errorf("offset %d of %d is settled: %v", at.offset, at.when, got)
		}
	}
	for _, e := range entries {
		b.apply([]byte(e.key), nil)
	}
	if b.strange > 0 || len(b.commands)+len(b.progress)+len(b.settled) > 0 {
		t.Errorf("%+v", b)
	}
}

func TestABookPassesOverGarbage(t *testing.T) {
	t.Parallel()
	b := newBook()
	garbage := map[string]string{
		"": "", "command/": "{}", "command/7": `{"id":"8","kind":"release"}`, "command/9": `{"id":"9","kind":"shred","everything":true}`,
		"command/10": `{"id":"10","kind":"release"}`, "command/11": `{"id":"11","kind":"release","everything":true,"rate":-1}`, "command/12": "[",
		"command/13": `{"id":"13","kind":"cancel","filter":{"levels":["90s"]}}`, "command/14": `{"id":"14","kind":"cancel","filter":{"filter":{"reasons":["exhausted"]}}}`,
		"command/15": `{"id":"15","kind":"cancel","filter":{"levels":["1h"],"shards":[7]}}`, "command/16": `{"id":"16","kind":"cancel","filter":{"filter":{"error_text":"x","tenant":"acme"}}}`,
		"progress/7": "{}", "progress/7/90s/1": "{}", "progress/7/1m30s/x": "{}", "progress/7/1m30s/1": "7",
		"settled/": "{}", "settled/1h/1": "{}", "settled/1h/1/x": "{}", "settled/1h/1/-1": "{}", "settled/1h/1/0": `{"bits":"AAAA"}`, "settled/0s/1/0": "{}",
	}
	for key, value := range garbage {
		b.apply([]byte(key), []byte(value))
		if len(b.commands) > 0 {
			t.Errorf("it keeps %s", key)
		}
		if value != "" {
			b.apply([]byte(key), nil) // and the end of it
		}
	}
	if b.strange < len(garbage) || len(b.commands)+len(b.progress)+len(b.settled) > 0 {
		t.Errorf("%d are strange: %+v", b.strange, b)
	}
}

// A newer version may say more of a command; more of a filter takes less.
func TestABookReadsACommandOfANewerVersion(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.apply([]byte("command/7"), []byte(`{"id":"7","kind":"cancel","priority":3,"filter":{"levels":["1h"]}}`))
	if len(b.commands) != 1 || b.strange > 0 {
		t.Errorf("%+v", b)
	}
}

func FuzzBook(f *testing.F) {
	f.Add("command/7", []byte(`{"id":"7","kind":"release","everything":true}`))
	f.Add("settled/1h/1/0", []byte(`{"bits":""}`))
	f.Add("progress/7/retry/0", []byte(`{}`))
	f.Fuzz(func(_ *testing.T, key string, value []byte) {
		b := newBook()
		b.apply([]byte(key), value)
		for _, bs := range b.settled {
			bs.has(1<<62, 0)
			bs.count(0, 1<<62)
		}
		b.apply([]byte(key), nil)
	})
}
