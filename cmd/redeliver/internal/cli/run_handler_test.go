package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// readFlags returns what run makes of its flags.
func readFlags(t *testing.T, args ...string) (c struct{ most, fewest int }, problems string) {
	t.Helper()
	a := &app{printer: printer{Streams: Streams{Env: func(string) string { return "" }}}}
	f := &runFlags{}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	a.conn.flags(flags)
	f.define(flags)
	if err := flags.Parse(append([]string{"--broker", "kafka://h:1", "--topic", "t", "--group", "g"}, args...)); err != nil {
		t.Fatal(err)
	}
	read, errs := a.readRun(f, flags, -1)
	for _, err := range errs {
		problems += err.Error() + "\n"
	}
	c.most, c.fewest = read.InFlight, read.MinInFlight
	return c, problems
}

// The minimum counts what the maximum counts: messages, or batches.
func TestRunMinConcurrency(t *testing.T) {
	t.Parallel()
	for args, want := range map[string][2]int{
		"--http http://h":                     {100, 0},
		"--http http://h --min-concurrency 5": {100, 5},
		"--http http://h --batch 10 --concurrency 4 --min-concurrency 2": {50, 20},
		"--http http://h --batch 10 --concurrency 4 --min-concurrency 4": {50, 40},
	} {
		if got, problems := readFlags(t, strings.Fields(args)...); got.most != want[0] || got.fewest != want[1] || problems != "" {
			t.Errorf("%s: %+v, %s", args, got, problems)
		}
	}
	for args, want := range map[string]string{
		"--http http://h --concurrency 4 --min-concurrency 5":            "--min-concurrency is 5: must be at most --concurrency, 4",
		"--http http://h --batch 10 --concurrency 4 --min-concurrency 5": "--min-concurrency is 5: must be at most --concurrency, 4",
		"--http http://h --min-concurrency -1":                           "--min-concurrency is -1",
	} {
		if _, problems := readFlags(t, strings.Fields(args)...); !strings.Contains(problems, want) {
			t.Errorf("%s: %s", args, problems)
		}
	}
}

// Filters that no message passes, or that cannot be read, are refused.
func TestRunFilters(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--skip-tombstones --only-header a=b --skip-header c=base64:/w==": "",
		"--only-header a=b --only-header a=c --skip-header a=c":           "",
		"--only-header a":                               `--only-header is "a": must be name=value`,
		"--skip-header =a":                              `--skip-header is "=a": must be name=value`,
		"--skip-header a=":                              `--skip-header is "a=": must have a value`,
		"--only-header a=base64:":                       `--only-header is "a=base64:": must have a value`,
		"--only-header a=base64:?":                      "--only-header a=base64:?",
		"--only-header a=b --skip-header a=b":           `exclude each other for the header "a"`,
		"--broker amqp://h --skip-tombstones":           "only a Kafka record can have no value",
		"--broker sqs://eu-central-1 --skip-tombstones": "only a Kafka record can have no value",
	} {
		if _, problems := readFlags(t, append([]string{"--http", "http://h"}, strings.Fields(args)...)...); (problems == "") != (want == "") || !strings.Contains(problems, want) {
			t.Errorf("%s: %q", args, problems)
		}
	}
}

// Credentials are files that are read before the start, for a handler that can ask for them.
func TestRunCredentials(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t0ken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, problems := readFlags(t, "--http", "http://h", "--bearer-file", token); problems != "" {
		t.Error(problems)
	}
	for args, want := range map[string]string{
		"--http http://h --bearer-file " + token + "x":    "--bearer-file: open",
		"--http https://h --client-cert " + token:         "a certificate and its key need each other",
		"--http https://h --ca-file " + token:             "has no certificate in PEM",
		"--exec --bearer-file " + token:                   "need --http: a command gets no request",
		"--http https://h --client-key x --client-cert x": "--client-cert, --client-key and --ca-file: open",
	} {
		if _, problems := readFlags(t, strings.Fields(args)...); !strings.Contains(problems, want) || strings.Contains(problems, "t0ken") {
			t.Errorf("%s: %s", args, problems)
		}
	}
}
