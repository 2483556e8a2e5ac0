package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// call is one run of the command in this process.
type call struct {
	env      map[string]string
	in       io.Reader
	terminal bool // it runs in a terminal
	screen   *terminal
	output   *buffer // stdout, for tests that read it while the command runs
	ctx      context.Context
}

// ending is the result of a call.
type ending struct {
	code     int
	out, err string
}

func (c call) run(t *testing.T, args ...string) ending {
	t.Helper()
	out, errs := c.output, buffer{}
	if out == nil {
		out = &buffer{}
	}
	var screen cli.Screen
	if c.screen != nil {
		screen = c.screen
	}
	if c.in == nil {
		c.in = strings.NewReader("")
	}
	if c.ctx == nil {
		c.ctx = t.Context()
	}
	env := map[string]string{"XDG_CONFIG_HOME": t.TempDir(), "REDELIVER_WHO": "ann@ops-1"}
	maps.Copy(env, c.env)
	code := cli.Run(c.ctx, args, cli.Streams{
		In: c.in, Out: out, Err: &errs, Screen: screen, Env: func(name string) string { return env[name] },
		InTerminal: c.terminal, OutTerminal: c.terminal, ErrTerminal: c.terminal, MaxClose: maxWait,
	})
	return ending{code, out.String(), errs.String()}
}

// buffer is safe for concurrent use, because a progress bar's goroutine may write to it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// want fails the test unless the command has this exit code and these outputs.
func (e ending) want(t *testing.T, code int, says ...string) ending {
	t.Helper()
	if e.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", e.code, code, e.out, e.err)
	}
	for _, s := range says {
		if !strings.Contains(e.err, s) {
			t.Errorf("stderr does not say %q: %s", s, e.err)
		}
	}
	return e
}

// golden compares stdout with a file of testdata.
func (e ending) golden(t *testing.T, name string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(e.out), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if e.out != string(want) {
		t.Errorf("stdout is not as in %s:\n%s\nwant:\n%s", path, e.out, want)
	}
}

// object decodes stdout as one JSON object.
func (e ending) object(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(e.out), &v); err != nil {
		t.Fatalf("%v in %q; stderr: %s", err, e.out, e.err)
	}
	return v
}

// objects decodes stdout as an array of JSON objects.
func (e ending) objects(t *testing.T) []map[string]any {
	t.Helper()
	var v []map[string]any
	if err := json.Unmarshal([]byte(e.out), &v); err != nil {
		t.Fatalf("%v in %q; stderr: %s", err, e.out, e.err)
	}
	return v
}

func TestWrongCallsEndWith2(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"nosuch", "dlq nosuch", "dlq list extra", "dlq list --nosuch", "dlq list --output xml", "dlq list",
		"dlq list --broker localhost:9092", "dlq list --broker http://h:1", "dlq list --profile nosuch --broker kafka://localhost:1",
		"dlq groups", "dlq groups a.b.dlq c.d.dlq", "dlq show a.b.dlq --limit -1", "dlq show a.b.dlq --after soon", "dlq show a.b.dlq --header tenant",
		"dlq show a.b.dlq --header a=1 --header a=2", "dlq show a.b.dlq --reason bored",
		"dlq replay a.b.dlq", "dlq replay a.b.dlq --note test", "dlq replay a.b.dlq --note test --yes --rate fast",
		"dlq purge a.b.dlq --note test --yes", "dlq purge a.b.dlq --all --note test", "dlq purge a.b.dlq --id 7 --yes",
		"dlq edit a.b.dlq --note test --yes", "dlq edit a.b.dlq --position 0/1 --note test", "dlq edit a.b.dlq --position 0/1 --set x --note test --yes",
		"dlq edit a.b.dlq --position 0/1 --body-file nosuch --note test --yes",
		"dlq import a.b.dlq --note test", "dlq import a.b.dlq --file nosuch --note test --yes", "dlq check a.b.dlq --max -1",
		"dlq resume a.b.dlq", "dlq resume a.b.dlq 7", "dlq pause", "dlq cancel a b c", "dlq list --password-file nosuch --broker kafka://ann@localhost:1",
		"plan", "plan --topic orders", "plan --topic orders --retries -1", "plan --topic orders --backoff soon", "plan --topic orders --order sideways",
		"plan --topic orders --timeout 0s", "plan --topic orders --group g --format kafka-topics --output json --broker kafka://h:1", "plan --topic orders --format kafka-acls",
		"version now",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := call{}.run(t, strings.Fields(args)...).want(t, 2, "redeliver: ", "--help")
			if got.out != "" {
				t.Errorf("stdout has %q", got.out)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := (call{}).run(t, "version", "--output", "json").want(t, 0).object(t); got["go"] == "" || got["platform"] == "" || got["version"] == "" {
		t.Errorf("%v", got)
	}
}

// The help is printed to stdout.
func TestHelpIsPrinted(t *testing.T) {
	t.Parallel()
	got := call{}.run(t, "dlq", "replay", "--help").want(t, 0)
	for _, flag := range []string{"--dry-run", "--yes", "--note", "--rate", "--canary"} {
		if !strings.Contains(got.out, flag) {
			t.Errorf("the help lacks %s", flag)
		}
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := (call{}).run(t, "completion", shell).want(t, 0); len(got.out) < 1000 {
			t.Errorf("%s: %q", shell, got.out)
		}
	}
	if got := (call{}).run(t, "__complete", "dlq", "list", "--output", "").want(t, 0); !strings.HasPrefix(got.out, "table\njson\njsonl\nyaml\n") {
		t.Errorf("--output completes to %q", got.out)
	}
}

// A broker that does not answer is a failure, not wrong usage, and stdout is empty.
func TestABrokerThatDoesNotAnswerEndsWith1(t *testing.T) {
	t.Parallel()
	got := call{}.run(t, "dlq", "list", "--broker", "kafka://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
	if got.out != "" {
		t.Errorf("stdout has %q", got.out)
	}
}

// For each broker, the command reports what it does not support, and connects for what it supports.
func TestBrokersOtherThanKafka(t *testing.T) {
	t.Parallel()
	const sqs = "sqs+http://127.0.0.1:1"
	call{}.run(t, "dlq", "list", "--broker", sqs).want(t, 1, "127.0.0.1:1")
	call{}.run(t, "dlq", "check", "--broker", sqs).want(t, 1, "127.0.0.1:1")
	call{}.run(t, "dlq", "groups", "orders", "--broker", sqs).want(t, 2, "give --topic")
	for _, args := range []string{"dlq groups orders-dlq", "dlq groups orders-dlq.fifo", "dlq show --topic orders"} {
		if got := (call{}).run(t, append(strings.Fields(args), "--broker", sqs)...).want(t, 1); strings.Contains(got.err, "not there yet") {
			t.Errorf("%s: %s", args, got.err)
		}
	}
	call{}.run(t, "dlq", "groups", "orders.dlq", "--broker", "amqp://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
}

// A flag without effect on a broker is refused before any request, with the reason. A profile's group is used only for
// brokers with groups.
func TestFlagsWithoutAMeaningAreRefused(t *testing.T) {
	t.Parallel()
	const sqs, rabbit, kafka = "sqs+http://127.0.0.1:1", "amqp://127.0.0.1:1", "kafka://127.0.0.1:1"
	for args, says := range map[string]string{
		"dlq groups --topic orders --group billing --broker " + sqs:                  "SQS has no consumer groups",
		"dlq groups orders.dlq --group billing --broker " + rabbit:                   "RabbitMQ has no consumer groups",
		"dlq check --group billing --broker " + rabbit:                               "RabbitMQ has no consumer groups",
		"plan --topic orders --group billing --broker " + sqs:                        "SQS has no consumer groups",
		"doctor --topic orders --group billing --broker " + sqs:                      "SQS has no consumer groups",
		"doctor --topic orders --group billing --broker " + rabbit:                   "RabbitMQ has no consumer groups",
		"dlq replay orders.dlq --lease 5s --note test --yes --broker " + rabbit:      "for as long as the connection of its task lasts",
		"dlq resume orders.dlq 7 --lease 5s --yes --broker " + rabbit:                "for as long as the connection of its task lasts",
		"dlq import orders.dlq --lease 5s --note test --yes --broker " + rabbit:      "for as long as the connection of its task lasts",
		"dlq purge orders.dlq --all --lease 5s --note test --yes --broker " + rabbit: "for as long as the connection of its task lasts",
	} {
		call{}.run(t, strings.Fields(args)...).want(t, 2, says)
	}
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("mine:\n  broker: "+sqs+"\n  group: billing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"dlq resume --topic orders --group billing 7 --lease 5s --yes --broker " + kafka, "dlq resume orders-dlq 7 --lease 5s --yes --broker " + sqs,
		"dlq groups --topic orders --profile mine --config " + config, "doctor --topic orders --profile mine --config " + config,
	} {
		call{}.run(t, strings.Fields(args)...).want(t, 1, "127.0.0.1:1")
	}
}
