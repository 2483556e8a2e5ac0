package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// The file can do whatever the flags can: every flag of run is a key, apart from those about the file and the output.
func TestEachFlagOfRunIsAKeyOfTheFile(t *testing.T) {
	t.Parallel()
	top, section := cli.RunKeys()
	others := []string{"check", "color", "config", "file", "help", "output"}
	got := slices.Sorted(slices.Values(slices.Concat(top, section, others)))
	if want := slices.Sorted(slices.Values(cli.FlagsOfRun())); !slices.Equal(got, want) {
		t.Errorf("the keys are %q, and the flags %q", got, want)
	}
}

// docs/reference/subscriptions.schema.json is the schema of the file. "go test -run TestTheFilesSchema -update" writes it.
func TestTheFilesSchema(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(cli.FileSchema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	path := filepath.Join("..", "..", "..", "..", "docs", "reference", "subscriptions.schema.json")
	if *update {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if written, err := os.ReadFile(path); err != nil || string(written) != string(text) {
		t.Errorf("%s is not the schema of the flags (%v): run the test with -update", path, err)
	}
}

// Two topics with two policies and two kinds of handler: each has its own retries, the health page names each, and both end
// gracefully.
func TestRunFile(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments", "letters")
	done := t.TempDir()
	p := newProgram(t, func(w http.ResponseWriter, _ asked) {
		http.Error(w, "the bank is closed", http.StatusInternalServerError)
	})
	s.put(payments("down")...)
	s.put(&kgo.Record{Topic: "letters", Value: []byte("down")}, &kgo.Record{Topic: "letters", Partition: 1, Value: []byte("good")})
	path := write(t, fmt.Sprintf(`
health: 127.0.0.1:0
metrics: true
defaults:
  broker: %s
  backoff: fixed:50ms
  http: %s
subscriptions:
  - topic: payments
    group: billing
    retries: 1
  - topic: [letters]
    group: post
    retries: 3
    batch: 2
    batch-wait: 10ms
    exec: [/bin/sh, -c, 'body=$(cat); echo "$REDELIVER_ATTEMPT" >> "$0/$body"; test "$body" = good', %s]
`, s.url, p.URL, done))
	wrong := strings.Replace(path, "file", "wrong", 1)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wrong, text, 0o600); err != nil {
		t.Fatal(err)
	}
	call{}.run(t, "run", "--file", wrong).want(t, 2, wrong+":15: cloudevents and batch need http: a command gets one unchanged message")
	if err := os.WriteFile(path, []byte(strings.NewReplacer("    batch: 2\n", "", "    batch-wait: 10ms\n", "").Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	h := s.start(nil, "run", "-o", "json", "--file", path)
	var rows []struct {
		Health  string `json:"health"`
		Group   string `json:"group"`
		Handler string `json:"handler"`
	}
	s.await("it says what it consumes", func() bool { return json.Unmarshal([]byte(h.out.String()), &rows) == nil })
	if len(rows) != 2 || rows[0].Group != "billing" || rows[1].Handler != "/bin/sh and 3 arguments" || rows[0].Health == "" {
		t.Errorf("it says %s", h.out)
	}
	s.await("payments ran twice, and are in their DLQ", func() bool { return p.attempts()["down"] == "12" && s.dead(1)["down"] != "" })
	s.await("letters ran four times", func() bool { return lines(t, filepath.Join(done, "down")) == 4 })
	s.records("letters.post.dlq", 1)
	if n := lines(t, filepath.Join(done, "good")); n != 1 {
		t.Errorf("the good letter ran %d times", n)
	}
	ready := func() string {
		res, err := http.Get(rows[0].Health + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return string(text)
	}
	want := fmt.Sprintf("payments of group billing on %[1]s: ok\nletters of group post on %[1]s: ok\n", s.url)
	s.await("it is ready", func() bool { return ready() == want })
	s.await("both are counted", func() bool {
		page := get(t, rows[0].Health+"/metrics")
		return strings.Contains(page, `origin="payments"`) && strings.Contains(page, `origin="letters"`) && strings.Count(page, "\nredeliver_exporter_up{") == 1
	})
	h.stop().want(t, 0)
}

// One error has all problems of the file, each with its line, and none names a flag that the file does not have.
func TestTheProblemsOfAFile(t *testing.T) {
	t.Parallel()
	path := write(t, `health: nowhere
defaults:
  broker: kafka://h:9092
  group: billing
  timeout: 0s
subscriptions:
  - topic: orders
    http: http://localhost/
    retries: -1
    levels: [1m, 1s]
    backoff: sometimes
    key-header: k
  - http: http://localhost/
    exec: [./charge]
    timeout: 1s
    max-age: -1s
    dead-letter-rate: -1
    max-timeout: 1m
  - topic: orders
    http: http://ann:s3cret@localhost/
    event-type: x
    timeout: 1s
  - topic: orders
    broker: amqp://localhost
    timeout: 1s
`)
	got := call{}.run(t, "run", "--file", path, "--check").want(t, 2)
	for _, want := range []string{
		`1: health is "nowhere"`, "5: timeout is 0s: must be more than 0", "9: retries is -1", "11: backoff ", `12: key-header is "k"`,
		"13: missing topic", "14: http and exec exclude each other", "16: max-age is -1s", "17: dead-letter-rate is -1", "19: topic: line 7 already has this topic and group",
		"20: http is ***@localhost/: must not contain a user", "21: event-type means nothing without cloudevents", "23: no handler given: give http: URL, or exec: [COMMAND]",
		"10: levels[1] is 1s: must be longer", `4: group is "billing": only Kafka has consumer groups`,
	} {
		if !strings.Contains(got.err, path+":"+want) {
			t.Errorf("no %q in\n%s", want, got.err)
		}
	}
	if strings.Contains(got.err, "s3cret") || strings.Contains(strings.ReplaceAll(got.err, "--help", ""), "--") {
		t.Errorf("%s", got.err)
	}
	call{}.run(t, "run", "--file", write(t, "subscriptions:\n- topik: x\n"), "--check").want(t, 2, `:2: unknown key "topik". Did you mean topic?`)
	call{}.run(t, "run", "--file", path, "--retries", "1").want(t, 2, "--retries and --file exclude each other: write retries into the file")
	call{}.run(t, "run", "--file", path, "--", "x").want(t, 2, "the commands are in the file")
	call{}.run(t, "run", "--file", path+"x").want(t, 2, "--file: ", "no such file")
	call{}.run(t, "plan", "--file", path, "--format", "iam").want(t, 2, "--format and --file exclude each other")
}

// --check connects to nothing. A broker of the command line is for subscriptions without one.
func TestRunCheck(t *testing.T) {
	t.Parallel()
	path := write(t, "log: json\nsubscriptions:\n- topic: a\n  group: g\n  http: http://h\n- topic: b\n  broker: amqp://127.0.0.1:1\n  exec: [./charge]\n")
	call{}.run(t, "run", "--file", path, "--check").want(t, 2, path+":3: no broker given")
	got := call{}.run(t, "run", "--file", path, "--check", "--broker", "kafka://127.0.0.1:1", "-o", "jsonl").want(t, 0)
	want := `{"broker":"kafka","topics":["a"],"group":"g","handler":"http://h"}` + "\n" + `{"broker":"rabbitmq","topics":["b"],"handler":"./charge"}` + "\n"
	if got.out != want {
		t.Errorf("it prints %s", got.out)
	}
	call{}.run(t, "run", "--check", "--broker", "kafka://127.0.0.1:1", "--topic", "a", "--group", "g", "--http", "http://h").want(t, 0)
}

// The file of docs/reference/subscriptions.md is one.
func TestTheDocumentedFile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", "subscriptions.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	got := call{}.run(t, "run", "--file", write(t, text), "--check", "-o", "jsonl").want(t, 0)
	if strings.Count(got.out, "\n") != 3 || !strings.Contains(got.out, `"topics":["clicks","views"]`) {
		t.Errorf("it prints %s", got.out)
	}
}

// When one subscription cannot start, all end, and the error names it.
func TestASubscriptionThatCannotStartEndsAll(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	path := write(t, fmt.Sprintf("defaults: {broker: %q, group: billing, http: 'http://127.0.0.1:1'}\nsubscriptions:\n- topic: payments\n- topic: no/topic\n", s.url))
	call{}.run(t, "run", "--file", path).want(t, 1, "no/topic of group billing on kafka://", "all end")
}

// The plan of a file is that of each subscription. It has the problems of all.
func TestPlanFile(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments", "letters")
	text := fmt.Sprintf("defaults: {broker: %q, http: 'http://h'}\nsubscriptions:\n- {topic: payments, group: billing, backoff: 'fixed:10s'}\n- {topic: letters, group: post, backoff: 'fixed:2m'}\n", s.url)
	got := s.run("plan", "--file", write(t, text), "-o", "jsonl").want(t, 0)
	var origins []string
	for _, r := range records(t, got.out) {
		origins = append(origins, fmt.Sprint(r["origin"], " ", r["group"]))
	}
	if want := []string{"payments billing", "letters post"}; !slices.Equal(origins, want) {
		t.Errorf("planned are %q", origins)
	}
	table := s.run("plan", "--file", write(t, text)).want(t, 0)
	if !strings.Contains(table.out, "payments.billing.retry.10s") || !strings.Contains(table.out, "letters.post.retry.2m") {
		t.Errorf("the tables are %s", table.out)
	}
	s.run("plan", "--file", write(t, strings.NewReplacer("payments", "a/b", "letters", "c/d").Replace(text))).want(t, 1, "a/b of group billing", "c/d of group post")
}
