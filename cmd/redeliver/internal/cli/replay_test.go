package cli_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func TestReplayGoesBackToItsGroup(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	strange := dead(6, 0, noCard)
	for i := range strange.Headers {
		if strange.Headers[i].Key == kafka.UUIDHeader || strange.Headers[i].Key == redeliver.HeaderID {
			strange.Headers[i].Value = []byte("\u202eorder\u009b")
		}
	}
	s.put(strange)
	results := filepath.Join(t.TempDir(), "results.jsonl")
	got := s.run("dlq", "replay", dlq, "--reason", "permanent", "--note", "the card exists now", "--results", results, "--yes", "-o", "json").want(t, 0).object(t)
	if got["status"] != "done" || got["who"] != "ann@ops-1" || got["note"] != "the card exists now" || got["replay_to"] != back {
		t.Errorf("%v", got)
	}
	if n := got["counts"].(map[string]any)["replayed"]; n != 3.0 {
		t.Errorf("%v replayed, want 3", n)
	}
	if ids := s.ids(back, 3); !maps.Equal(ids, map[string]int{"order-0004": 1, "order-0005": 1, "\u202eorder\u009b": 1}) {
		t.Errorf("on the retry topic are %v", ids)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || bytes.ContainsAny(text, "\u202e\u009b") || !strings.Contains(string(text), `"id":"\u202eorder\u009b"`) || !strings.Contains(lines[0], `"outcome":"replayed"`) || !strings.Contains(lines[0], `"task":"`+got["id"].(string)) {
		t.Errorf("results are %q", lines)
	}
	left := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t)
	if len(left) != 3 {
		t.Errorf("%d are left, want 3", len(left))
	}
	history := s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t)
	if len(history) != 1 || history[0]["id"] != got["id"] {
		t.Errorf("the history is %v", history)
	}
}

// Verbs that only read neither write nor create topics.
func TestDryRunChangesNothing(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	exported := s.run("dlq", "export", dlq).want(t, 0).out
	if n := strings.Count(exported, "\n"); n != 5 {
		t.Fatalf("%d lines are exported", n)
	}
	before := s.everything()
	for _, args := range []string{
		"replay orders.billing.dlq --dry-run", "replay orders.billing.dlq --dry-run --yes --note test", "purge orders.billing.dlq --all --dry-run",
		"purge orders.billing.dlq --all --dry-run --yes --note test", "edit orders.billing.dlq --position 0/0 --set a=b --dry-run --yes --note test",
		"import orders.billing.dlq --dry-run --yes --note test", "list", "groups orders.billing.dlq", "show orders.billing.dlq", "check --max 5", "tasks orders.billing.dlq",
	} {
		s.with(call{in: strings.NewReader(exported)}, append([]string{"dlq"}, strings.Fields(args)...)...).want(t, 0)
	}
	// Without --yes and without a terminal nothing starts, and nothing starts if the answer is no.
	s.run("dlq", "replay", dlq, "--note", "test").want(t, 2, "--yes")
	s.with(call{terminal: true, in: strings.NewReader("n\n")}, "dlq", "replay", dlq, "--note", "test").want(t, 1, "Replay 5 of 5", "nothing was done")
	s.with(call{terminal: true, in: strings.NewReader("")}, "dlq", "replay", dlq, "--note", "test").want(t, 1, "nothing was done")
	s.with(call{terminal: true}, "dlq", "replay", dlq, "--id", "nosuch", "--note", "test").want(t, 0, "nothing to do: no message")
	s.with(call{terminal: true, in: strings.NewReader("y\n")}, "dlq", "purge", dlq, "--all", "--note", "test").want(t, 1, "Remove 5 of 5", "nothing was done")
	s.with(call{terminal: true, in: strings.NewReader("n\n")}, "dlq", "edit", dlq, "--position", "0/0", "--set", "a=b", "--note", "test").want(t, 1, "nothing was done")
	if after := s.everything(); !maps.Equal(before, after) {
		t.Errorf("topics had %v records and now have %v", before, after)
	}
}

// everything returns how many records were ever written to each topic.
func (s *testKafka) everything() map[string]int64 {
	s.t.Helper()
	topics, err := s.adm.ListTopics(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	all := make(map[string]int64)
	for _, name := range topics.Names() {
		all[name] = s.written(name)
	}
	return all
}

func TestReplayAndPurgeAskOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.with(call{terminal: true, in: strings.NewReader("y\n")}, "dlq", "replay", dlq, "--id", "order-0001", "--note", "test").want(t, 0, "Replay 1 of 1")
	s.with(call{terminal: true, in: strings.NewReader(dlq + "\n")}, "dlq", "purge", dlq, "--id", "order-0002", "--note", "test").want(t, 0)
	if n := s.written(back); n != 1 {
		t.Errorf("%d on the retry topic, want 1", n)
	}
	if left := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t); len(left) != 3 {
		t.Errorf("%d are left, want 3", len(left))
	}
}

// Without a terminal there is no progress bar, and NO_COLOR disables all colours.
func TestProgressAndColourAreForTerminals(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	if got := s.run("dlq", "replay", dlq, "--id", "order-0001", "--note", "test", "--yes").want(t, 0); got.err != "" {
		t.Errorf("stderr has %q", got.err)
	}
	if got := s.with(call{terminal: true}, "dlq", "replay", dlq, "--id", "order-0002", "--note", "test", "--yes").want(t, 0); !strings.Contains(got.err, "replay  [") {
		t.Errorf("no bar in %q", got.err)
	}
	if got := s.with(call{terminal: true}, "dlq", "list").want(t, 0); !strings.Contains(got.out, "\x1b[1m") {
		t.Errorf("no bold header in %q", got.out)
	}
	for _, env := range []map[string]string{{"NO_COLOR": "1"}, {"TERM": "dumb"}} {
		if got := s.with(call{terminal: true, env: env}, "dlq", "list").want(t, 0); strings.Contains(got.out, "\x1b") {
			t.Errorf("%v: colours in %q", env, got.out)
		}
	}
	if got := s.with(call{env: map[string]string{"NO_COLOR": "1"}}, "dlq", "list", "--color", "always").want(t, 0); !strings.Contains(got.out, "\x1b[1m") {
		t.Errorf("no colours with --color always: %q", got.out)
	}
	if got := s.with(call{terminal: true}, "dlq", "list", "--color", "never").want(t, 0); strings.Contains(got.out, "\x1b") {
		t.Errorf("colours with --color never: %q", got.out)
	}
}

// If messages stay because they were refused or were replayed too often, the task is partly done.
func TestPartlyDone(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	worn := declined
	worn.Replays = 3
	other := dead(2, 0, declined)
	for i, h := range other.Headers {
		if h.Key == redeliver.HeaderGroup {
			other.Headers[i].Value = []byte("mail")
		}
	}
	s.put(dead(1, 0, worn), other, dead(3, 0, declined))
	got := s.run("dlq", "replay", dlq, "--note", "test", "--yes", "-o", "json").want(t, 5, "2 messages remain").object(t)
	counts := got["counts"].(map[string]any)
	if counts["replayed"] != 1.0 || counts["skipped"] != 1.0 || counts["refused"] != 1.0 {
		t.Errorf("%v", counts)
	}
	s.run("dlq", "replay", dlq, "--id", "order-0001", "--max-replays", "4", "--note", "it is fixed", "--yes").want(t, 0)
}

// A canary whose message comes back ends partly done, and can be resumed.
func TestCanaryStops(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	stop := make(chan struct{})
	returned := make(chan error, 1)
	go func() { // the group, which fails its first message again
		returned <- s.returns(stop)
	}()
	s.run("dlq", "replay", dlq, "--canary", "1,2", "--watch", "1m", "--note", "test", "--yes").want(t, 5, "stopped", "came back", "redeliver dlq resume "+dlq)
	close(stop)
	if err := <-returned; err != nil {
		t.Error(err)
	}
	s.run("dlq", "check", dlq, "--max", "9").want(t, 3)
	task := s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t)[0]["id"].(string)
	s.run("dlq", "cancel", dlq, task).want(t, 0)
	s.run("dlq", "check", dlq, "--max", "9").want(t, 0)
	s.run("dlq", "resume", dlq, task, "--yes").want(t, 1, "cancelled")
}

// returns fails the first message of the retry topic.
func (s *testKafka) returns(stop <-chan struct{}) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.cl.OptValue(kgo.SeedBrokers).([]string)...), kgo.ConsumeTopics(back),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	go func() { <-stop; cancel() }()
	for {
		for _, r := range cl.PollFetches(ctx).Records() {
			st := declined
			st.Replays = 1
			again := dead(0, 0, st)
			for i, h := range again.Headers {
				for _, was := range r.Headers {
					if h.Key == redeliver.HeaderID && was.Key == h.Key {
						again.Headers[i].Value = bytes.Clone(was.Value)
					}
				}
			}
			again.Timestamp = time.Now()
			if err := s.cl.ProduceSync(ctx, again).FirstErr(); err != nil {
				return err
			}
			<-stop
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

func TestPurgeEditImport(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	file := filepath.Join(t.TempDir(), "all.jsonl")
	s.run("dlq", "export", dlq, "--file", file).want(t, 0, "5 messages exported")
	s.run("dlq", "export", dlq, "--file", file).want(t, 2, "exists")
	s.run("dlq", "purge", dlq, "--reason", "exhausted", "--expect", "2", "--note", "test", "--yes").want(t, 1, "more than was expected")
	got := s.run("dlq", "purge", dlq, "--reason", "exhausted", "--expect", "3", "--note", "test", "--yes", "-o", "json").want(t, 0).object(t)
	if got["counts"].(map[string]any)["purged"] != 3.0 {
		t.Errorf("%v", got)
	}
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte("fixed"), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := []string{"dlq", "edit", dlq, "--position", "0/2", "--body-file", body, "--set", "currency=EUR", "--note", "test", "--yes"}
	s.run(append(edit, "--id", "order-0001")...).want(t, 1, "order-0005")
	s.run(append(edit, "--set", "redeliver-attempt=1")...).want(t, 2, "locked")
	got = s.run(append(edit, "-o", "json")...).want(t, 0).object(t)
	if diff := got["diff"].(map[string]any); diff["id"] != "order-0005" || len(diff["headers"].([]any)) != 1 {
		t.Errorf("%v", got)
	}
	rec := s.records(back, 1)[0]
	if string(rec.Value) != "fixed" || !slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == "currency" && string(h.Value) == "EUR" }) {
		t.Errorf("sent was %q with %v", rec.Value, rec.Headers)
	}
	if dry := s.run("dlq", "import", dlq, "--file", file, "--dry-run", "-o", "json").want(t, 0).object(t); dry["import"] != 5.0 {
		t.Errorf("%v", dry)
	}
	got = s.run("dlq", "import", dlq, "--file", file, "--note", "test", "--yes", "-o", "json").want(t, 0).object(t)
	if got["counts"].(map[string]any)["imported"] != 5.0 {
		t.Errorf("%v", got)
	}
	s.with(call{in: strings.NewReader("{}\n")}, "dlq", "import", dlq, "--note", "test", "--yes").want(t, 1)
	part, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.with(call{in: bytes.NewReader(append(part, "nonsense"...))}, "dlq", "import", dlq, "--note", "test", "--yes").want(t, 5)
	var kinds []string
	for _, task := range s.run("dlq", "tasks", dlq, "-o", "json").want(t, 0).objects(t) {
		kinds = append(kinds, task["kind"].(string)+" "+task["status"].(string))
	}
	want := []string{"purge done", "edit failed", "edit done", "import done", "import failed", "import failed"}
	if !slices.Equal(kinds, want) {
		t.Errorf("the history is %q, want %q", kinds, want)
	}
	// Such tasks cannot be resumed, so check does not report them.
	s.run("dlq", "check", dlq, "--max", "99").want(t, 0)
}

// The number given with --expect counts, even if the question shows another number.
func TestPurgeOnATerminalKeepsExpect(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	purge := []string{"dlq", "purge", dlq, "--reason", "exhausted", "--note", "test", "--expect"}
	for _, more := range []string{"--dry-run", "--note=test"} {
		s.with(call{terminal: true, in: strings.NewReader(dlq + "\n")}, append(purge, "2", more)...).want(t, 1, "more than was expected", "3 messages match")
	}
	if left := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t); len(left) != 5 {
		t.Fatalf("%d are left, want all 5", len(left))
	}
	s.run(append(purge, "4", "--dry-run")...).want(t, 0)
	got := s.with(call{terminal: true, in: strings.NewReader(dlq + "\n")}, append(purge, "4", "-o", "json")...).want(t, 0, "Remove 3 of 5").object(t)
	if got["expect"] != 4.0 || got["counts"].(map[string]any)["purged"] != 3.0 {
		t.Errorf("%v", got)
	}
	got = s.with(call{terminal: true, in: strings.NewReader(dlq + "\n")}, "dlq", "purge", dlq, "--all", "--note", "test", "-o", "json").want(t, 0, "Remove 2 of 2").object(t)
	if got["expect"] != 2.0 {
		t.Errorf("the shown number is not the expected one: %v", got)
	}
}
