package cli_test

import (
	"regexp"
	"strings"
	"testing"
)

// goNames matches names of Go fields, which users of the command do not know.
var goNames = regexp.MustCompile(`\b(Sarama|Config|Policy|Filter)\.[A-Z]|(configuration refused: |; )[A-Z][A-Za-z]+(\[\d\])? is `)

// The error shows the scheme that an address without one, such as host:port, needs.
func TestABrokerWithoutASchemeIsRefusedWithTheForm(t *testing.T) {
	t.Parallel()
	for given, says := range map[string]string{
		"localhost:9092":    "--broker localhost:9092: add the scheme, for example kafka://localhost:9092",
		"a:9092,b:9092":     "--broker a:9092,b:9092: add the scheme, for example kafka://a:9092,b:9092",
		"rabbit:5672":       "--broker rabbit:5672: add the scheme, for example amqp://rabbit:5672",
		"rabbit:5671":       "for example amqps://rabbit:5671",
		"localhost:9324":    "for example sqs+http://localhost:9324",
		"eu-central-1":      "--broker eu-central-1: add the scheme, for example sqs://eu-central-1",
		"localhost":         "--broker localhost: add the scheme: kafka://host:9092, kafka+tls://",
		"ann:s3cret@a:9092": "--broker: add the scheme before the user, for example kafka://",
		"ann:s3cret":        "--broker: add the scheme: kafka://host:9092",
		"http://h:9092":     "--broker http://h:9092: unknown scheme http://: must be one of kafka://",
		"kafka://h":         `--broker kafka://h: the address that begins with "h" must be host:port, as in kafka://host:9092`,
	} {
		for _, verb := range []string{"dlq list", "run --topic t --group g --http http://h", "console --listen 127.0.0.1:0"} {
			got := call{}.run(t, append(strings.Fields(verb), "--broker", given)...).want(t, 2, says)
			if strings.Contains(got.err, "s3cret") || strings.Contains(got.err, "***") || goNames.MatchString(got.err) {
				t.Errorf("%s --broker %s: %s", verb, given, got.err)
			}
		}
	}
	call{env: map[string]string{"REDELIVER_BROKER": "h:9092"}}.run(t, "dlq", "list").want(t, 2, "$REDELIVER_BROKER h:9092: add the scheme")
	profiles := write(t, "shop:\n  broker: h:9092\n")
	call{}.run(t, "dlq", "list", "--profile", "shop", "--config", profiles).want(t, 2, "the broker of profile shop h:9092: add the scheme")
}

func TestErrorsNameFlags(t *testing.T) {
	t.Parallel()
	for broker, says := range map[string]string{
		"kafka://127.0.0.1:1":     "TLS (off; kafka+tls:// turns it on) and SASL (off: the URL has no user)",
		"kafka+tls://127.0.0.1:1": "TLS (on; kafka:// turns it off)",
		"amqp://127.0.0.1:1/":     "check the address, the user, the virtual host and TLS",
		"sqs+http://127.0.0.1:1":  "connection refused",
	} {
		for _, verb := range []string{"dlq show x --topic t", "doctor --topic t", "plan --topic t", "run --topic t --http http://h", "console --listen 127.0.0.1:0 --dlq x,topic=t"} {
			t.Run(verb+" "+broker, func(t *testing.T) {
				t.Parallel()
				want := says
				args := append(strings.Fields(verb), "--broker", broker)
				switch {
				case strings.HasPrefix(verb, "console"):
					if strings.HasPrefix(broker, "kafka") {
						args[4] += ",group=g"
					}
				case strings.HasPrefix(broker, "kafka"):
					args = append(args, "--group", "g")
				}
				if strings.HasPrefix(verb, "run") && strings.HasPrefix(broker, "kafka") {
					want = "check the address"
				}
				got := call{}.run(t, args...).want(t, 1, "--broker "+strings.TrimSuffix(broker, "/"), want)
				if goNames.MatchString(got.err) {
					t.Errorf("%s", got.err)
				}
			})
		}
	}
	call{}.run(t, "dlq", "list", "--broker", "amqp://127.0.0.1:1", "--management-url", "http://127.0.0.1:1").want(t, 1, "--broker amqp://127.0.0.1:1")
	for args, says := range map[string]string{
		"simulate --retries 2000000":              "--retries is 2000000: must be from 1 to 1000000",
		"simulate --immediate 7":                  "--immediate is 7: must be from 0 to --retries",
		"simulate --levels 1s,1s":                 "--levels[1] is 1s: must be longer than the level before it",
		"simulate --max-age -1s":                  "--max-age is -1s",
		"simulate --backoff exponential:9s,1s":    "--backoff",
		"simulate --rate -1 --bars -2 --for -1s":  "--rate is -1",
		"simulate --concurrency -1 --handler -1s": "--concurrency is -1",
		"simulate --errors 2 --poison 3":          "--errors is 2",
		"run --broker kafka://h:1 --topic a --group g --http http://h --dead-letter-rate -1": "--dead-letter-rate is -1",
	} {
		got := call{}.run(t, strings.Fields(args)...).want(t, 2, says)
		if goNames.MatchString(got.err) {
			t.Errorf("%s: %s", args, got.err)
		}
	}
	s := newTestKafka(t)
	s.fill()
	for args, says := range map[string]string{
		"dlq replay " + dlq + " --note x --yes --rate -1 --window -1 --max-replays -1 --watch -1s --canary 0": "--rate is -1",
		"dlq replay " + dlq + " --note x --yes --after 2026-02-01 --before 2026-01-01":                        "--before is",
		"dlq purge " + dlq + " --note x --yes --all --expect -1":                                              "--expect is -1",
		"dlq show " + dlq + " --lease -1s":                                                                    "--lease",
		"dlq show --topic a/b --group g":                                                                      "--topic is",
		"dlq show x --topic orders --group billing --replay-to x":                                             "--replay-to",
	} {
		got := s.run(strings.Fields(args)...)
		if got.code == 0 || !strings.Contains(got.err, says) || goNames.MatchString(got.err) {
			t.Errorf("%s ends with %d: %s", args, got.code, got.err)
		}
	}
}

// An unset variable of a script must not widen what a command selects.
func TestEmptyFilterFlagsAreRefused(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	for _, flag := range []string{"after", "before", "error-text", "error-type", "fingerprint", "header", "id", "position", "reason"} {
		s.run("dlq", "purge", dlq, "--note", "x", "--yes", "--error-type", "x", "--"+flag, "").want(t, 2, "--"+flag+" is empty")
	}
	s.run("waiting", "cancel", "--topic", "orders", "--group", "billing", "--note", "x", "--yes", "--id", "x", "--level", "").want(t, 2, "--level is empty")
	s.run("dlq", "purge", dlq, "--note", "x", "--yes", "--key", "").want(t, 0)
}

// A flag that would do nothing is refused.
func TestFlagsThatNeedAnotherFlag(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"run --topic a --group b --event-type x", "run --topic a --group b --max-timeout 1m", "console --user-header X-User", "console --groups-header X-Groups",
		"console --proxy-secret-file x", "dlq replay a.b.dlq --watch 1m", "plan --topic a --group b --principal User:b", "plan --topic a --group b --for operator",
		"plan --topic a --group b --account 1",
	} {
		call{}.run(t, append(strings.Fields(args), "--broker", "kafka://127.0.0.1:1")...).want(t, 2, " means nothing without --")
	}
}
