package pubsub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// lie returns the ids of what lies in a DLQ, in its order.
func lie(tb testing.TB, q deadletter.Queue) (ids []string) {
	tb.Helper()
	if err := deadletter.Browse(context.Background(), q, deadletter.Filter{}, 0, func(m *deadletter.Message) bool {
		ids = append(ids, m.ID)
		return true
	}); err != nil {
		tb.Fatal(err)
	}
	return ids
}

func order(ids ...string) deadletter.Replay {
	return deadletter.Replay{Who: "ann", Why: "test", Filter: deadletter.Filter{IDs: ids}}
}

// unacked is how many messages of a topic its group has not acked.
func (m *memory) unacked(topic, group string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.groups[[2]string{topic, group}])
}

// Files that are closed become smaller when half of what is in them is settled, and go
// when all is; nothing that was not settled goes with them, whatever is left behind.
func TestAShelfGivesBackTheRoomOfWhatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := writer(t, shelf{dir})
		w.full = 1
		for batch := range 4 {
			if err := w.add(lettersOf(t, batch*10, 10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		b := newMemory()
		q := shelfOf(t, b.member(t, "billing"), DeadLetterConfig{Topic: "orders", Dir: dir})
		defer q.Close()
		var all []string
		for _, l := range lettersOf(t, 0, 40) {
			all = append(all, string(l.UUID))
		}
		if got := lie(t, q); !slices.Equal(got, all) {
			t.Fatalf("there are %q", got)
		}
		size := func(base int64) int64 {
			f, err := os.Stat(q.letters(base))
			if err != nil {
				return 0
			}
			return f.Size()
		}
		before := size(11)
		// The first file, most of the second, little of the third, and all of the last.
		if err := q.settle(1, spans{{1, 10}}); err != nil { // by a runner that has died
			t.Fatal(err)
		}
		gone := slices.Concat(all[10:17], all[20:23], all[30:])
		task, err := deadletter.Run(t.Context(), q, order(gone...))
		if err != nil || task.Counts.Replayed != int64(len(gone)) {
			t.Fatalf("the replay says %+v: %v", task, err)
		}
		left := slices.Concat(all[17:20], all[23:30])
		check := func(what string, q *deadLetters) {
			t.Helper()
			if got := lie(t, q); !slices.Equal(got, left) {
				t.Errorf("%s: there are %q, want %q", what, got, left)
			}
			if n, _, err := q.Count(t.Context()); err != nil || n != int64(len(left)) {
				t.Errorf("%s: it counts %d, want %d: %v", what, n, len(left), err)
			}
		}
		check("after it", q)
		if _, err := os.Stat(q.outs(1)); size(1) != 0 || err == nil {
			t.Errorf("the first file has %d bytes, and what is known of it is there: %v", size(1), err)
		}
		if now := size(11); now == 0 || now > before/2 {
			t.Errorf("the second has %d bytes of %d", now, before)
		}
		if now := size(21); now != before {
			t.Errorf("the third has %d bytes of %d", now, before)
		}
		// As who died in between has left it.
		for name, text := range map[string]string{q.outs(1): "[1,10]\n", q.letters(11) + newSuffix: "{", q.path(stateFile) + newSuffix: "{", q.outs(21) + newSuffix: ""} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		check("with what the dead left behind", q)
		other := shelfOf(t, b.member(t, "billing"), DeadLetterConfig{Topic: "orders", Dir: dir})
		defer other.Close()
		check("of another process", other)
		if _, err := deadletter.Run(t.Context(), other, order(left...)); err != nil {
			t.Fatal(err)
		}
		left = nil
		check("at the end", q)
		if n := len(b.topics["orders.billing.retry"]); n != 30 {
			t.Errorf("%d messages were replayed, want 30", n)
		}
	})
}

// On a full disk nothing is acked, and what was taken before can be seen; when there is
// room again all is taken.
func TestAFullDiskAcksNothing(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("a system without /dev/full: " + err.Error())
	}
	defer full.Close()
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		var told []redeliver.SubscriptionChanged
		q := shelfOf(t, b.member(t, "billing"), DeadLetterConfig{Topic: "orders", Dir: t.TempDir()})
		defer q.Close()
		q.c.cfg.Sink = redeliver.SinkFunc(func(e redeliver.Event) { told = append(told, e.(redeliver.SubscriptionChanged)) })
		b.put("orders.billing.dlq", dead(t, "a", "body"))
		if got := lie(t, q); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("there are %q", got)
		}
		synctest.Wait() // its writer is idle
		on := func(f *os.File) {
			q.intake.w.f = f
			q.intake.busy.Add(0) // what its lanes do next comes after it
		}
		disk := q.intake.w.f
		on(full)
		for _, id := range []string{"b", "c"} {
			b.put("orders.billing.dlq", dead(t, id, "body"))
		}
		if got := lie(t, q); !slices.Equal(got, []string{"a"}) {
			t.Errorf("there are %q", got)
		}
		if n := b.unacked("orders.billing.dlq", "billing"); n != 2 {
			t.Errorf("%d messages are not acked, want 2", n)
		}
		if _, _, err := q.Count(t.Context()); err == nil || !strings.Contains(err.Error(), "stay in their topic") {
			t.Errorf("Count says %v", err)
		}
		synctest.Wait()
		on(disk)
		<-time.After(time.Minute)
		if got := lie(t, q); len(got) != 3 {
			t.Errorf("there are %q", got)
		}
		if n := b.unacked("orders.billing.dlq", "billing"); n != 0 {
			t.Errorf("%d messages are not acked", n)
		}
		if len(told) != 2 || told[0].Change != "dead letters are not taken" || !strings.Contains(told[0].Err.Error(), "no space") || told[1].Change != "dead letters are taken again" {
			t.Errorf("it told %+v", told)
		}
	})
}

// Of two processes with one directory one takes the letters, and both see them; when it
// dies the other takes them.
func TestTwoProcessesShareAShelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		cfg := DeadLetterConfig{Topic: "orders", Dir: t.TempDir()}
		first := shelfOf(t, b.member(t, "billing"), cfg)
		second := shelfOf(t, b.member(t, "billing"), cfg)
		defer second.Close()
		if first.intake == nil || second.intake != nil {
			t.Fatal("not the first takes letters, and it alone")
		}
		b.put("orders.billing.dlq", dead(t, "a", "body"))
		for _, q := range []*deadLetters{first, second} {
			if got := lie(t, q); !slices.Equal(got, []string{"a"}) {
				t.Errorf("there are %q", got)
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		b.put("orders.billing.dlq", dead(t, "b", "body"))
		if got := lie(t, second); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("there are %q", got)
		}
	})
}

// A directory belongs to one DLQ.
func TestAShelfOfAnotherDLQIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, dir := newMemory(), filepath.Join(t.TempDir(), "made", "here")
		if err := shelfOf(t, b.member(t, "billing"), DeadLetterConfig{Topic: "orders", Dir: dir}).Close(); err != nil {
			t.Fatal(err)
		}
		m := b.member(t, "billing")
		c, err := Open(Config{Publisher: m, Subscriber: m, Group: "billing", Confirms: true, MaxUnacked: NoLimit})
		if err != nil {
			t.Fatal(err)
		}
		for name, cfg := range map[string]DeadLetterConfig{
			"another topic":   {Topic: "refunds", Dir: dir},
			"another DLQ":     {Topic: "orders", DLQ: "poison", Dir: dir},
			"no topic":        {Dir: dir},
			"no directory":    {Topic: "orders"},
			"no time at all":  {Topic: "orders", Dir: dir, Quiet: -1},
			"the way back":    {Topic: "orders", Dir: t.TempDir(), DLQ: "orders.billing.retry"},
			"the topic again": {Topic: "orders", Dir: t.TempDir(), DLQ: "orders"},
		} {
			q, err := c.DeadLetters(t.Context(), cfg)
			if _, ok := errors.AsType[*redeliver.ConfigError](err); !ok || q != nil {
				t.Errorf("%s: it is opened as %v: %v", name, q, err)
			}
		}
	})
}

// What Watermill's poison queue filled: who and why is read, bytes that are no text stay
// what they are, and a replay is the message as it was.
func TestAPoisonQueueIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		msg := message.NewMessage("", []byte{0, 0xff})
		msg.Metadata = message.Metadata{
			"reason_poisoned": "no such card", "topic_poisoned": "orders", "handler_poisoned": "charge", "raw\xff": "\x00\xfe", StateKey: "the user's own",
		}
		b.put("poison", msg)
		q := shelfOf(t, b.member(t, "billing"), DeadLetterConfig{Topic: "orders", DLQ: "poison", Dir: t.TempDir()})
		defer q.Close()
		m, err := deadletter.Find(t.Context(), q, "1")
		if err != nil || m.Filler != deadletter.FilledByWatermill || m.State.Error != "no such card" || m.Handler != "charge" || !strings.HasPrefix(m.ID, "derived:") {
			t.Fatalf("it is seen as %+v: %v", m, err)
		}
		if _, err := deadletter.Run(t.Context(), q, order()); err != nil {
			t.Fatal(err)
		}
		back := b.topics["orders.billing.retry"]
		if len(back) != 1 {
			t.Fatalf("%d messages came back", len(back))
		}
		rec, c := newRecord(back[0], true, nil)
		if rec.uuid != "" || string(rec.payload) != "\x00\xff" || len(rec.metadata) != 2 || rec.metadata["raw\xff"] != "\x00\xfe" || rec.metadata[StateKey] != "the user's own" || c == nil {
			t.Errorf("it came back as %+v", rec)
		}
	})
}
