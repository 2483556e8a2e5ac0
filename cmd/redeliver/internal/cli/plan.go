package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/delayqueue"
)

// planned is a plan for programs and for people.
type planned struct {
	row  planRow
	text string // as the adapter writes it
}

// planRow is what plan prints, on every broker.
type planRow struct {
	Broker      string     `json:"broker"`
	Origin      string     `json:"origin"`          // the topic or queue
	Group       string     `json:"group,omitempty"` // of Kafka
	Places      []placeRow `json:"places"`          // the topics or queues that are used
	Delays      []delayRow `json:"delays"`          // of the planned retries, in order
	LongestWait string     `json:"longest_wait"`    // that a handler may ask for
	Notes       []string   `json:"notes,omitempty"`
	NotChecked  []string   `json:"not_checked,omitempty"`
}

// placeRow is a topic or queue of a plan.
type placeRow struct {
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`            // delay, retry, dlq, and on some brokers queue, suspects
	Level      string         `json:"level,omitempty"` // of a delay topic or queue: 1m30s
	Partitions int32          `json:"partitions,omitempty"`
	Replicas   int16          `json:"replicas,omitempty"`
	Settings   map[string]any `json:"settings,omitempty"` // topic settings, queue arguments, attributes
	Exists     bool           `json:"exists"`             // false: it is created at start
	Old        bool           `json:"old,omitempty"`      // of an older policy
	Messages   *int64         `json:"messages,omitempty"` // where that is known
}

// delayRow is the wait before one retry.
type delayRow struct {
	Retry     int      `json:"retry"` // 1 for the first retry
	After     string   `json:"after"` // without jitter; 0s is an immediate try
	Jitter    string   `json:"jitter"`
	Hops      []string `json:"hops"` // the levels on which it waits
	Mechanism string   `json:"mechanism"`
}

func (p *planRow) add(retry int, after, jitter time.Duration, hops []time.Duration, mechanism string) {
	d := delayRow{Retry: retry, After: after.String(), Jitter: jitter.String(), Hops: []string{}, Mechanism: mechanism}
	for _, h := range hops {
		d.Hops = append(d.Hops, delayqueue.LevelName(h))
	}
	p.Delays = append(p.Delays, d)
}

func level(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return delayqueue.LevelName(d)
}

func settings[V any](m map[string]V) map[string]any {
	all := make(map[string]any, len(m))
	for name, value := range m {
		all[name] = value
	}
	return all
}

// known is a number of messages, where -1 is not known.
func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func (a *app) plan() *cobra.Command {
	var p policyFlags
	var topic, group, format string
	cmd := &cobra.Command{
		Use:   "plan --topic T [--group G]",
		Short: "Say how a policy would wait, and what would be created",
		Long: `plan asks the broker what there is, and says which topics or queues a subscription
with this policy would use and create, and how each delay would be spent. Nothing is
created. What cannot be met is refused, all problems at once, with exit code 1.`,
		Example: "  redeliver plan --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			if topic == "" {
				return usagef("which topic, or queue? give --topic")
			}
			switch {
			case format == "":
			case cmd.Flags().Changed("output"):
				return usagef("--format and --output say the same: leave one out")
			case format == "json":
				a.output = formatJSON
			case format != "text":
				return usagef("--format is %q: it must be text or json; topics, rights and templates for brokers are not there yet", format)
			}
			if group == "" {
				if _, err := a.conn.url(a.Env); err != nil { // reads the profile
					return err
				}
				group = a.conn.read.Group
			}
			return a.with(ctx, setup{group: group, policy: policy}, func(b *broker) error {
				plan, err := b.plan(ctx, topic)
				if err != nil {
					return failed(codeOf(err), "%w", err)
				}
				if a.output == formatTable {
					return a.write(visibleLines(plan.text))
				}
				return a.one(plan.row, nil)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "the `topic` that is consumed; on RabbitMQ and SQS the queue (required)")
	flags.StringVar(&group, "group", "", "the consumer `group` (on Kafka required; elsewhere there is none)")
	flags.StringVar(&format, "format", "", "text or json; --output does as well")
	p.flags(flags)
	complete(cmd, "format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// codeOf is the code of a plan that was refused: the call was not wrong, unless it
// says so itself.
func codeOf(err error) int {
	if f, ok := asFailure(err); ok {
		return f.code
	}
	return codeFailed
}
