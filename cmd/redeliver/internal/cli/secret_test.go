package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const (
	user     = "ops-user"
	password = "pa55-phrase"
	brief    = "s3cr3t" // so short that the YAML parser quotes all of it
)

// A password comes from a file, the environment or the URL. No error quotes it.
func TestPassword(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	addr := c.ListenAddrs()[0]
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.Ping(t.Context()); err != nil {
		t.Fatal(err) // otherwise the tests below would prove nothing
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right, empty, two := file("right", password+"\n"), file("empty", "\n"), file("two", password+"\n"+password+"\n")
	profiles := file("profiles.yaml", "shop:\n  broker: kafka://"+user+"@"+addr+"\n  group: billing\n  password-file: right\n")
	broken := file("broken.yaml", "shop:\n  broker: [kafka://"+user+":"+password+"@"+addr+"]\n  pass: "+password+"\n")
	scalar := file("scalar.yaml", "shop: "+brief+"\n")
	url := "kafka://" + user + "@" + addr
	full := "kafka://" + user + ":" + password + "@" + addr
	env := map[string]string{"REDELIVER_PASSWORD": password}
	for name, test := range map[string]struct {
		env  map[string]string
		args string
		code int
		says string
	}{
		"in the URL":             {nil, "dlq list --broker " + full, 0, ""},
		"in the URL's variable":  {map[string]string{"REDELIVER_BROKER": full}, "dlq list", 0, ""},
		"in the environment":     {env, "dlq list --broker " + url, 0, ""},
		"in a file":              {nil, "dlq list --password-file " + right + " --broker " + url, 0, ""},
		"the file goes first":    {map[string]string{"REDELIVER_PASSWORD": "wrong"}, "dlq list --password-file " + right + " --broker " + url, 0, ""},
		"in the profile's file":  {nil, "dlq list --profile shop --config " + profiles, 0, ""},
		"named by the variables": {map[string]string{"REDELIVER_PROFILE": "shop", "REDELIVER_CONFIG": profiles}, "dlq list", 0, ""},
		"nowhere":                {nil, "dlq list --broker " + url, 2, "needs a user and a password"},
		"twice":                  {env, "dlq list --broker " + full, 2, "omit one"},
		"without a user":         {env, "dlq list --broker kafka://" + addr, 2, "no user"},
		"an empty file":          {nil, "dlq list --password-file " + empty + " --broker " + url, 2, "is empty"},
		"two lines":              {nil, "dlq list --password-file " + two + " --broker " + url, 2, "more than one line"},
		"a wrong one":            {map[string]string{"REDELIVER_PASSWORD": password + "x"}, "dlq list --broker " + url, 1, ""},
		"as an argument":         {nil, "dlq list " + full, 2, ""},
		"as a verb":              {nil, full, 2, ""},
		"as a verb of dlq":       {nil, "dlq " + full, 2, ""},
		"as a topic of help":     {nil, "help " + full, 2, ""},
		"as a flag":              {nil, "dlq --" + full, 2, ""},
		"as a short flag":        {nil, "dlq list -" + full, 2, ""},
		"as a list":              {nil, "dlq replay --canary " + full, 2, ""},
		"as a file":              {nil, "dlq list --broker " + url + " --password-file " + full, 2, ""},
		"as a number":            {nil, "dlq show --limit " + full, 2, ""},
		"as a duration":          {nil, "plan --topic orders --timeout " + full, 2, ""},
		"as a profile":           {nil, "dlq list --profile " + full + " --config " + profiles, 2, ""},
		"as a format":            {nil, "dlq list -o " + full, 2, ""},
		"as a DLQ":               {nil, "dlq groups " + full + " --broker " + full, 1, ""},
		"as a time":              {nil, "dlq groups --after " + full + " --broker " + full, 2, ""},
		"without its @host":      {nil, "dlq list --broker kafka://" + user + ":" + password, 2, ""},
		"a broken profile":       {nil, "dlq list --profile shop --config " + broken, 2, "reading the profiles"},
		"a profile of one word":  {nil, "dlq list --profile shop --config " + scalar, 2, "reading the profiles"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := call{env: test.env}.run(t, strings.Fields(test.args)...).want(t, test.code, test.says)
			if strings.Contains(got.out+got.err, password) || strings.Contains(got.out+got.err, brief) {
				t.Errorf("the password is repeated:\n%s%s", got.out, got.err)
			}
		})
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	dir := t.TempDir()
	path := filepath.Join(dir, "redeliver", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "shop:\n  broker: " + s.url + "\n  group: billing\nother:\n  broker: kafka://127.0.0.1:1\n  group: mail\nempty:\n  group: billing\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(name, value string) call {
		return call{env: map[string]string{"XDG_CONFIG_HOME": dir, name: value}}
	}
	none := with("", "")
	// The profile's group is used if only a topic is given. A DLQ's name overrides it.
	none.run(t, "dlq", "groups", "--topic", "orders", "--profile", "shop").want(t, 0, "5 messages")
	none.run(t, "dlq", "groups", dlq, "--profile", "shop").want(t, 0, "5 messages")
	none.run(t, "plan", "--topic", "orders", "--profile", "nosuch").want(t, 2, "no profile nosuch")
	none.run(t, "dlq", "list", "--profile", "empty").want(t, 2, "no broker")
	with("REDELIVER_PROFILE", "shop").run(t, "dlq", "list").want(t, 0)
	// A flag overrides the environment, and the environment overrides a profile that it names.
	with("REDELIVER_BROKER", "kafka://127.0.0.1:1").run(t, "dlq", "list", "--profile", "shop").want(t, 0)
	with("REDELIVER_PROFILE", "other").run(t, "dlq", "list", "--broker", s.url).want(t, 0)
	both := with("REDELIVER_PROFILE", "other")
	both.env["REDELIVER_BROKER"] = s.url
	both.run(t, "dlq", "list").want(t, 0)
	got := none.run(t, "__complete", "dlq", "list", "--profile", "").want(t, 0)
	if !strings.HasPrefix(got.out, "empty\t") || !strings.Contains(got.out, "shop\tbilling") {
		t.Errorf("profiles complete to %q", got.out)
	}
	got = none.run(t, "__complete", "dlq", "show", "--profile", "shop", "").want(t, 0)
	if !strings.HasPrefix(got.out, dlq+"\n") {
		t.Errorf("a DLQ completes to %q", got.out)
	}
}

// Each verb that connects warns before it sends a password without TLS. The host's name is invalid, so that no request is
// sent.
func TestVerbsWarnOfPlainPasswords(t *testing.T) {
	t.Parallel()
	for broker, secure := range map[string]string{
		"amqp://ann:hunter22@rabbit..invalid":                         "use amqps://",
		"kafka://ann:hunter22@kafka..invalid:9092?sasl=plain":         "use kafka+tls://",
		"kafka+tls://ann:hunter22@kafka..invalid:9092?sasl=plain":     "",
		"kafka://ann:hunter22@127.0.0.1:1?sasl=plain":                 "",
		"kafka://ann:hunter22@kafka..invalid:9092?sasl=scram-sha-512": "",
	} {
		for _, verb := range []string{"dlq show x --topic t", "run --topic t --http http://127.0.0.1:1"} {
			args := append(strings.Fields(verb), "--broker", broker)
			if strings.HasPrefix(broker, "kafka") {
				args = append(args, "--group", "g")
			}
			got := call{}.run(t, args...).want(t, 1, secure)
			if warned := strings.Contains(got.err, "without TLS"); warned != (secure != "") || strings.Contains(got.err, "hunter22") {
				t.Errorf("%s --broker %s: %s", verb, broker, got.err)
			}
		}
		if got := (call{}).run(t, "__complete", "dlq", "show", "--broker", broker, "").want(t, 0); strings.Contains(got.err, "without TLS") {
			t.Errorf("completion writes to the command line: %s", got.err)
		}
	}
}
