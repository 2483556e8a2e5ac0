package cli

import (
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/IBM/sarama"
)

// flagOf maps a field of a Go configuration, as errors of the adapters name it, to the flag that sets it.
var flagOf = map[string]string{
	"Policy.MaxRetries": "--retries", "Policy.Immediate": "--immediate", "Policy.Backoff": "--backoff", "Policy.Levels": "--levels",
	"Policy.MaxLevels": "--max-levels", "Policy.Timeout": "--timeout", "Policy.MaxTimeout": "--max-timeout", "Policy.MaxAge": "--max-age", "Policy.Order": "--order",
	"Policy.Rate.PerSecond": "--rate-limit", "Policy.Rate.Burst": "--burst", "Policy.Outage": "--outage", "Policy.DeadLetterRate": "--dead-letter-rate",
	"MaxInFlight": "--concurrency", "MaxRetriesInFlight": "--retry-concurrency", "MinInFlight": "--min-concurrency", "DrainTimeout": "--drain", "InstanceID": "--instance-id",
	"BatchConfig.Size": "--batch", "BatchConfig.Bytes": "--batch-bytes", "BatchConfig.Timeout": "--batch-wait", "SpringHeaders": "--spring-headers",
	"ManagementURL": "--management-url", "Topic": "--topic", "topic": "--topic", "topics": "--topic", "queues": "--topic", "Group": "--group",
	"DLQ": "the DLQ", "DLQ.Retention": "--retention", "ReplayTo": "--replay-to", "ReadBy": "--read-by", "Lease": "--lease",
	"Rate": "--rate", "Canary": "--canary", "Watch": "--watch", "Window": "--window", "MaxReplays": "--max-replays", "Expect": "--expect", "Everything": "--all",
	"Who": "--who", "Why": "--note", "Position": "--position", "Set": "--set", "Remove": "--remove", "Body, Set, Remove": "what --body-file, --set and --remove say",
	"Filter": "the filter", "Filter.Before": "--before", "Filter.IDs": "--id", "Filter.Positions": "--position", "Filter.Fingerprints": "--fingerprint", "Filter.Levels": "--level",
	"Expires": "--for", "Duration": "--for", "HandlerTime": "--handler", "Concurrency": "--concurrency", "Bars": "--bars", "ErrorShare": "--errors", "PoisonShare": "--poison", "Outages": "--outage",
	"Refresh": "--refresh", "TraceURL": "--trace-url",
}

// problem matches a field, with or without an index, in the text of a redeliver.ConfigError.
var problem = regexp.MustCompile(`(configuration refused: |; )([A-Za-z][A-Za-z., ]*?)(\[\d+\])?((?:\.[A-Z][A-Za-z]+)*) is `)

// goWords replaces Go names in rules and hints with the command's words.
var goWords = strings.NewReplacer(
	", 0 for the default, or NoRetries", ", or 0 for none", "from 0 to MaxRetries,", "from 0 to --retries,", "use Immediate", "use --immediate",
	"NoProvisioning is set", "--no-provisioning is given", "or set Everything", "or give --all", "later than Filter.After", "later than --after",
	"Config.ManagementURL", "--management-url", "Config.Endpoint", "the address in --broker", ", a role or Config.AWS", " or a role", "as DLQ.Retention says", "as --retention says",
	"Sarama.Net.TLS (off)", "TLS (off; kafka+tls:// turns it on)", "Sarama.Net.TLS (on)", "TLS (on; kafka:// turns it off)",
	"Sarama.Net.SASL (off)", "SASL (off: the URL has no user)", "Sarama.Net.SASL (", "SASL (",
)

// inFlags returns the text of an error with flags instead of Go fields.
func inFlags(err error) string {
	text := problem.ReplaceAllStringFunc(err.Error(), func(match string) string {
		part := problem.FindStringSubmatch(match)
		for name := part[2] + part[4]; name != ""; {
			if flag, ok := flagOf[name]; ok {
				return part[1] + flag + part[3] + " is "
			}
			name = name[:max(0, strings.LastIndexByte(name, '.'))]
		}
		return match
	})
	return goWords.Replace(text)
}

// withAddress adds the broker to an error if the broker could not be reached.
func (c *connection) withAddress(err error) error {
	op, dial := errors.AsType[*net.OpError](err)
	_, name := errors.AsType[*net.DNSError](err)
	_, reported := errors.AsType[*unreached](err)
	elsewhere := dial && op.Op == "listen" || err != nil && strings.Contains(err.Error(), "Config.ManagementURL")
	if c.from == "" || reported || elsewhere || !(dial || name || errors.Is(err, sarama.ErrOutOfBrokers)) {
		return err
	}
	return &unreached{c.from, err}
}

// unreached reports that a broker could not be reached.
type unreached struct {
	from string
	err  error
}

func (u *unreached) Error() string { return u.from + ": " + u.err.Error() }
func (u *unreached) Unwrap() error { return u.err }
