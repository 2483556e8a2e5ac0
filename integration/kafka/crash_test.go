package kafka_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// crashRun starts child processes that crash, one after another, and reads their journal.
type crashRun struct {
	crashConfig
	ids    []string
	client *kgo.Client
	starts int
}

// newCrashRun writes n messages to a topic of four partitions.
func newCrashRun(t *testing.T, cfg crashConfig, n int) *crashRun {
	t.Helper()
	name := strings.ToLower(rand.Text()[:10])
	if cfg.Addrs == nil {
		cfg.Addrs = brokers.RequireKafka(t)
	}
	cfg.Topic, cfg.Group = "crash-"+name, "g-"+name
	cfg.Journal = filepath.Join(t.TempDir(), "journal")
	if err := os.WriteFile(cfg.Journal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(cfg.Addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	kafkatest.MakeTopic(t, kadm.NewClient(client), 4, nil, cfg.Topic)
	w := &crashRun{crashConfig: cfg, client: client}
	var recs []*kgo.Record
	for i := range n {
		id := fmt.Sprintf("m%04d", i)
		w.ids = append(w.ids, id)
		recs = append(recs, &kgo.Record{Topic: cfg.Topic, Key: []byte(id), Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "_watermill_message_uuid", Value: []byte(id)}}})
	}
	if err := client.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *crashRun) start(t *testing.T) child {
	t.Helper()
	w.starts++
	return startChild(t, crashEnv, w.crashConfig, w.journalPath(w.starts))
}

// explain logs the last journal lines of the killer, and the logs of the last processes.
func (w *crashRun) explain(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(w.Journal)
	if err != nil {
		t.Fatal(err)
	}
	var killer []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, w.Killer) {
			killer = append(killer, strings.TrimSpace(line))
		}
	}
	t.Logf("%d lines are of the killer, the last: %q", len(killer), killer[max(0, len(killer)-10):])
	for i := max(1, w.starts-2); i <= w.starts; i++ {
		log, err := os.ReadFile(w.journalPath(i))
		t.Logf("process %d, %v: %s", i, err, log[max(0, len(log)-600):])
	}
}

// journalPath returns the log file of the nth process.
func (w *crashRun) journalPath(n int) string {
	return filepath.Join(filepath.Dir(w.Journal), fmt.Sprintf("child-%d.log", n))
}

// crashJournal is a summary of the journal.
type crashJournal struct {
	runs     int
	failed   int // runs of the message that fails
	inMemory int // reports that attempts are counted in memory
	commits  map[string]int
	charged  map[string]int // largest number of attempts that a commit was charged
	dead     map[string]redeliver.Reason
}

// readJournal reads the journal, without a last line that is incomplete.
func (w *crashRun) readJournal(t *testing.T) crashJournal {
	t.Helper()
	text, err := os.ReadFile(w.Journal)
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	c := crashJournal{commits: make(map[string]int), charged: make(map[string]int), dead: make(map[string]redeliver.Reason)}
	for line := range strings.Lines(string(text)) {
		var what, id string
		var n int
		if _, err := fmt.Sscan(line, &what, &id, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		reason, isDead := strings.CutPrefix(what, "dead-")
		switch {
		case isDead:
			c.dead[id] = redeliver.Reason(reason)
		case what == "run":
			c.runs++
			if id == w.Fails {
				c.failed++
			}
		case what == "in-memory":
			c.inMemory++
		default:
			c.commits[id]++
			c.charged[id] = max(c.charged[id], n)
		}
	}
	return c
}

// await returns true when ok accepts the journal, or false when p has ended.
func (w *crashRun) await(t *testing.T, p child, what string, ok func(crashJournal) bool) bool {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for !ok(w.readJournal(t)) {
		select {
		case <-tick.C:
		case <-p.Ended():
			return ok(w.readJournal(t))
		case <-deadline:
			c := w.readJournal(t)
			t.Fatalf("not within 2 minutes: %s; %d processes, %d runs, %d of %d committed, dead are %v", what, w.starts, c.runs, len(c.commits), len(w.ids), c.dead)
		}
	}
	return true
}

// finish ends a process in order when it has settled everything, as the group's offsets show. It returns false if the
// process died before that: kills leave copies of messages, also of the killer.
func (w *crashRun) finish(t *testing.T, p child) bool {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for {
		n, detail, err := brokerstate.Kafka(t.Context(), kadm.NewClient(w.client), w.Group, w.Topic, w.Topic+"."+w.Group)
		if err == nil && n == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-p.Ended():
			return false
		case <-deadline:
			t.Fatalf("not settled within 2 minutes: %d,%s %v", n, detail, err)
		}
	}
	p.end(syscall.SIGTERM)
	return true
}

// checkSettled checks the ends of all messages but the killer.
func (w *crashRun) checkSettled(t *testing.T) {
	t.Helper()
	c := w.readJournal(t)
	for _, id := range w.ids {
		if id != w.Killer && (c.commits[id] == 0 || c.charged[id] != 0) {
			t.Errorf("%s was committed %d times, and charged %d attempts; want at least once, and none", id, c.commits[id], c.charged[id])
		}
	}
	// The last process ended in order, and left no suspects.
	offsets, err := kadm.NewClient(w.client).FetchOffsets(t.Context(), w.Group)
	if err != nil {
		t.Fatal(err)
	}
	withMetadata := 0
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Metadata == "" {
			return
		}
		withMetadata++
		if !strings.Contains(o.Metadata, " state=left") || strings.Contains(o.Metadata, "suspects=") {
			t.Errorf("%s/%d is left with the metadata %q", o.Topic, o.Partition, o.Metadata)
		}
	})
	if withMetadata < 4 {
		t.Errorf("%d partitions have metadata, want at least the 4 of the origin", withMetadata)
	}
}

// One message kills its process while 500 others are in flight on several partitions. No other message is charged.
func TestOnlyTheKillerIsDeadLettered(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]crashConfig{
		"by SIGKILL":             {},
		"by os.Exit":             {Exit: true},
		"on its second attempt":  {KillsAt: 2},
		"where keys are ordered": {Order: redeliver.OrderThroughRetries},
		"where all are ordered":  {Order: redeliver.OrderBlocking},
		"of a dynamic member":    {DynamicMember: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Killer, cfg.MaxInFlight, cfg.Takes = "m0250", 500, 5*time.Millisecond
			w := newCrashRun(t, cfg, 600)
			for over := false; !over; {
				if w.starts > 20 { // each copy of the killer needs some
					w.explain(t)
					t.Fatalf("%d processes died", w.starts)
				}
				p := w.start(t)
				over = w.await(t, p, "all are committed, and one is dead", func(c crashJournal) bool {
					return len(c.commits) == len(w.ids)-1 && len(c.dead) > 0
				}) && w.finish(t, p)
			}
			w.checkSettled(t)
			c := w.readJournal(t)
			t.Logf("report: a message that kills its process, %s: %d processes, %d runs of 600 messages", name, w.starts, c.runs)
			if len(c.dead) != 1 || c.dead[cfg.Killer] != redeliver.ReasonCrashed || c.commits[cfg.Killer] > 0 {
				t.Errorf("dead letters are %v, want %s, crashed", c.dead, cfg.Killer)
			}
			if w.starts < redeliver.DefaultMaxCrashes+2 {
				t.Errorf("process %d dead-lettered it, although it was alone fewer than %d times", w.starts, redeliver.DefaultMaxCrashes)
			}
		})
	}
}

func TestKillsDeadLetterNothing(t *testing.T) {
	t.Parallel()
	const kills, messages = 5, 12_000
	w := newCrashRun(t, crashConfig{MaxInFlight: 100, Takes: 5 * time.Millisecond}, messages)
	for i := 1; i <= kills; i++ {
		p := w.start(t)
		if !w.await(t, p, "progress", func(c crashJournal) bool { return len(c.commits) >= 1500*i }) {
			t.Fatal("the process has ended unexpectedly")
		}
		p.end(syscall.SIGKILL)
	}
	left := messages - len(w.readJournal(t).commits)
	begun := time.Now()
	p := w.start(t)
	if !w.await(t, p, "all are committed", func(c crashJournal) bool { return len(c.commits) == messages }) {
		t.Fatal("the process has ended unexpectedly")
	}
	took := time.Since(begun)
	if !w.finish(t, p) {
		t.Fatal("the process has ended unexpectedly")
	}
	w.checkSettled(t)
	c := w.readJournal(t)
	t.Logf("report: %d kills: %d runs of %d messages; after the last, %d took %.1f s", kills, c.runs, messages, left, took.Seconds())
	if len(c.dead) > 0 {
		t.Errorf("dead letters: %v", c.dead)
	}
}
