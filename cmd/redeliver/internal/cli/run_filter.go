package cli

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// skipFlags say which messages are acked without the handler.
type skipFlags struct {
	tombstones bool
	only, skip []string // headers
}

func (f *skipFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&f.tombstones, "skip-tombstones", false, "Kafka: ack records without a value, and do not pass them to the handler")
	flags.StringArrayVar(&f.only, "only-header", nil, "Pass only messages with this header, `name=value`, to the handler, and ack all others. Both may be written as for the filters of dlq. Of several values of one name a message must have one, and of several names all. Repeatable")
	flags.StringArrayVar(&f.skip, "skip-header", nil, "Ack messages with this header, `name=value`, and do not pass them to the handler. Repeatable")
}

// filter checks the flags and returns what they say.
func (f *skipFlags) filter(kind brokerurl.Broker, bad func(string, ...any)) sidecar.Filter {
	filter := sidecar.Filter{Tombstones: f.tombstones}
	if f.tombstones && kind != "" && !kind.HasGroups() {
		bad("--skip-tombstones: only a Kafka record can have no value; omit --skip-tombstones")
	}
	parse := func(flag string, texts []string) map[string][]string {
		all := make(map[string][]string)
		for _, text := range texts {
			name, value, err := parseHeader(flag, text)
			switch {
			case err != nil:
				bad("%w", err)
			case value == "":
				bad("--%s is %q: must have a value, because a message without the header has an empty one", flag, text)
			case !slices.Contains(all[name], value):
				all[name] = append(all[name], value)
			}
		}
		return all
	}
	filter.Only, filter.Skip = parse("only-header", f.only), parse("skip-header", f.skip)
	for name, values := range filter.Only {
		if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(filter.Skip[name], v) }) {
			bad("--only-header and --skip-header exclude each other for the header %q: no message would reach the handler", name)
		}
	}
	return filter
}

// addSkipped counts the messages that the subscriptions skip.
func addSkipped(all []*consumed, to prometheus.Registerer) error {
	skipped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "redeliver_skipped_total", Help: "Messages that were acked without the handler, because of a filter.",
	}, []string{"messaging_system", "origin", "group", "why"})
	for _, s := range all {
		system := systems[s.c.Broker.Broker]
		s.c.Skipped = func(origin, group, why string) {
			skipped.WithLabelValues(system, origin, strings.ToValidUTF8(group, "?"), why).Inc()
		}
	}
	return to.Register(skipped)
}
