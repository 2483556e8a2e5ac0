package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The verbs can read the file that init writes. The default profile needs no flag.
func TestInitWritesAProfile(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	dir := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": dir}
	row := call{env: env}.run(t, "init", "--broker", s.url, "--group", "billing", "-o", "json").want(t, 0, "redeliver dlq list").object(t)
	if want := filepath.Join(dir, "redeliver", "config.yaml"); row["file"] != want || row["profile"] != "default" {
		t.Errorf("%v", row)
	}
	all := call{env: env}.run(t, "dlq", "list", "-o", "json").want(t, 0).objects(t)
	if len(all) != 1 || all[0]["dlq"] != dlq {
		t.Errorf("%v", all)
	}
	call{env: env}.run(t, "dlq", "show", "--topic", "orders").want(t, 0) // the profile's group
	call{env: env}.run(t, "dlq", "list", "--broker", "kafka://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
	text, err := os.ReadFile(row["file"].(string))
	if err != nil {
		t.Fatal(err)
	}
	// The commented-out lines are valid, too.
	whole := strings.NewReplacer("  # password-file:", "  password-file:", "  # management-url:", "  management-url:", "  # state-key-file:", "  state-key-file:",
		"# staging:", "staging:", "#   broker: kafka://staging", "  broker: kafka://staging").Replace(string(text))
	if whole == string(text) {
		t.Fatal("nothing is commented out")
	}
	file := write(t, whole)
	call{}.run(t, "dlq", "list", "--profile", "stagin", "--config", file).want(t, 2, "there is no profile stagin", "Did you mean staging?")
}

func TestInitRefuses(t *testing.T) {
	t.Parallel()
	there := write(t, "mine:\n  broker: kafka://h:1\n")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--config " + there:                    {1, "exists already"},
		"--broker kafka://ann:pa55-phrase@h:1": {2, "has a password"},
		"--broker h:1":                         {2, "add the scheme"},
		"a b":                                  {2, "one profile"},
		"-- a:b":                               {2, "the profile's name"},
		"--config /dev/null/x":                 {1, "/dev/null"},
	} {
		got := call{}.run(t, append([]string{"init"}, strings.Fields(args)...)...).want(t, want.code, want.says)
		if strings.Contains(got.err, "pa55") {
			t.Errorf("the password is repeated: %s", got.err)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "mine:\n  broker: kafka://h:1\n" {
		t.Errorf("%q, %v", text, err)
	}
	call{env: map[string]string{"XDG_CONFIG_HOME": t.TempDir()}}.run(t, "init", "mine", "--broker", "kafka+tls://ops@h:1?sasl=scram-sha-512", "--group", "a: b").want(t, 0, "--profile mine")
}
