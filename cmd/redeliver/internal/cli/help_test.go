package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// The help of every command equals testdata/help. "go test -run TestHelp -update" writes the files.
func TestHelp(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/command.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, path := range cli.Commands() {
		name := strings.ReplaceAll(strings.TrimSpace("redeliver "+path), " ", "-") + ".txt"
		files[name] = true
		got := call{}.run(t, append(strings.Fields(path), "--help")...).want(t, 0)
		got.golden(t, filepath.Join("help", name))
		// Texts of the libraries: the type of a flag without a name for its value, and the default of a list.
		if leak := regexp.MustCompile(`(?m)^ +(-., )?--[a-z-]+ (strings?|stringArray|ints?|intSlice|durationSlice|uint|float) |\(default \[\]\)`).FindString(got.out); leak != "" {
			t.Errorf("%s has %q", name, leak)
		}
		for i, line := range strings.Split(got.out, "\n") {
			if len(line) > 100 && !strings.HasPrefix(line, "  redeliver ") {
				t.Errorf("%s:%d has %d columns", name, i+1, len(line))
			}
		}
		if verb := path[strings.LastIndexByte(path, ' ')+1:]; !regexp.MustCompile("[|` ]"+verb+"[|` ]").Match(page) && verb != "" {
			t.Errorf("docs/reference/command.md lacks %s", path)
		}
	}
	all, err := os.ReadDir("testdata/help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if !files[f.Name()] {
			t.Errorf("testdata/help/%s is of no command", f.Name())
		}
	}
}

// The flags that docs/reference/command.md names exist.
func TestTheDocumentedFlagsExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/command.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range cli.Commands() {
		all.WriteString(call{}.run(t, append(strings.Fields(path), "--help")...).want(t, 0).out)
	}
	others := "--command-config" // of Kafka's tools
	for _, flag := range regexp.MustCompile("[ `]--[a-z][a-z-]+").FindAllString(string(page), -1) {
		if flag = flag[1:]; !strings.Contains(all.String(), flag) && !strings.Contains(others, flag) {
			t.Errorf("no command has %s", flag)
		}
	}
}

// Verbs that use no broker have no flags for one.
func TestNoConnectionFlagsWithoutABroker(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"version", "simulate", "ready", "completion", "help"} {
		if got := (call{}).run(t, append(strings.Fields(verb), "--help")...).want(t, 0); strings.Contains(got.out, "--broker") {
			t.Errorf("%s has --broker", verb)
		}
		call{}.run(t, append(strings.Fields(verb), "--broker", "kafka://h:1")...).want(t, 2, "unknown flag")
	}
}

func TestNoArgumentsPrintTheHelp(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "dlq", "waiting"} {
		help := call{}.run(t, append(strings.Fields(args), "--help")...).want(t, 0)
		if got := (call{}).run(t, strings.Fields(args)...).want(t, 0); got.out != help.out || got.err != "" {
			t.Errorf("%q prints %q, and %q to stderr", args, got.out, got.err)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"dql":                        `unknown command "dql" for "redeliver". Did you mean dlq?`,
		"dlq lst":                    `unknown command "lst" for "redeliver dlq". Did you mean list?`,
		"waiting cancle":             `Did you mean cancel?`,
		"dlq replay x --dryrun":      "unknown flag --dryrun. Did you mean --dry-run?",
		"dlq show x --reason timout": "Did you mean timeout?",
		"plan --topic t --order trough-retries --broker kafka://h:1 --output jsn": "Did you mean json",
		"plan --topic t --order blockin":                                          "Did you mean blocking?",
		"dlq frobnicate":                                                          `unknown command "frobnicate" for "redeliver dlq"` + "\n",
		"list":                                                                    `unknown command "list" for "redeliver". Did you mean dlq list or waiting list?`,
		"help dlg":                                                                `unknown command "dlg" for "redeliver". Did you mean dlq?`,
		"help dlq lst":                                                            `unknown command "lst" for "redeliver dlq". Did you mean list?`,
		"help version x":                                                          `unexpected argument "x"`,
		"completion zhs":                                                          "must be one of bash, fish, powershell, zsh. Did you mean zsh?",
		"completion":                                                              "this command takes the name of a shell",
		"version --color blue":                                                    `--color is "blue": must be one of auto, always, never`,
		"top --every 5":                                                           `--every is "5": must be a duration such as 90s or 2h`,
		"top --count few":                                                         `--count is "few": must be a whole number`,
		"dlq replay --canary a":                                                   `--canary is "a": must be whole numbers such as 1,10,100`,
		"plan --levels 1,2":                                                       `--levels is "1,2": must be durations such as 10s,1m,1h`,
	} {
		call{}.run(t, strings.Fields(args)...).want(t, 2, says)
	}
}

func TestEnumerationsAreCompleted(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"plan --order ":             "first-attempts\nnone\nblocking\nthrough-retries\n:4\n",
		"plan --backoff ":           "exponential:1s,60s\nexponential:1s,60s,factor=3,jitter=0.2\nfixed:10s\nsteps:10s,1m,1h\nrocketmq\n:4\n",
		"plan --for ":               "consumer\noperator\n:4\n",
		"dlq replay --reason ":      "exhausted\npermanent\nexpired\nundecodable\ntimeout\npanic\ncrashed\ninvalidated\nrejected\nunschedulable\n:4\n",
		"dlq list --broker ":        ":4\n", // no files
		"dlq list --password-file ": ":0\n", // files
		"dlq edit x --body-file ":   ":0\n",
		"simulate --rate ":          ":4\n",
		"dlq replay --note ":        ":4\n",
		"run --log ":                "text\njson\n:4\n",
		"top --color ":              "auto\nalways\nnever\n:4\n",
		"completion ":               "bash\nfish\npowershell\nzsh\n:4\n",
		"help wait":                 "waiting\tInspect, release and cancel messages that wait for a retry\n:4\n",
		"version ":                  ":4\n",
		"run --exec -- ":            ":0\n",
		"waiting list --order ":     "first-attempts\nnone\nblocking\nthrough-retries\n:4\n",
	} {
		got := call{}.run(t, append([]string{"__complete"}, strings.Split(args, " ")...)...).want(t, 0)
		if got.out != want {
			t.Errorf("%q completes to %q, want %q", args, got.out, want)
		}
	}
}
