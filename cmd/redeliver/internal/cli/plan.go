package cli

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/delayqueue"
)

// planned is a plan for programs and for people.
type planned struct {
	row    planRow
	text   string           // as the adapter writes it
	makers map[string]maker // by format
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
	var topic, group string
	var m making
	cmd := &cobra.Command{
		Use:   "plan --topic T [--group G]",
		Short: "Say how a policy would wait, and what would be created",
		Long: `plan asks the broker what there is, and says which topics or queues a subscription
with this policy would use and create, and how each delay would be spent. Nothing is
created. What cannot be met is refused, all problems at once, with exit code 1.

Where only an administrator may create anything, --format writes it down for him:
kafka-topics and kafka-acls are shell scripts for Kafka's own tools, rabbitmq-definitions
is for rabbitmqctl import_definitions, sqs-cloudformation is a template of the queues that
are not there yet, and iam a policy. The rights are those of --principal, and the least
that a consumer needs that creates nothing (NoProvisioning), or, with --for operator, who
works on the DLQ.`,
		Example: `  redeliver plan --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h
  redeliver plan --broker kafka://localhost:9092 --topic orders --group billing --format kafka-acls --principal User:billing`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			if topic == "" {
				return usagef("which topic, or queue? give --topic")
			}
			u, err := a.conn.url(a.Env) // reads the profile
			if err != nil {
				return err
			}
			if err := noGroup(u.Broker, group); err != nil {
				return err
			}
			if err := m.check(u.Broker); err != nil {
				return err
			}
			switch {
			case m.format == "":
			case cmd.Flags().Changed("output"):
				return usagef("--format and --output say the same: leave one out")
			case m.format == formatJSON:
				a.output = formatJSON
			}
			group = cmp.Or(group, a.conn.read.Group)
			elsewhere := m.format != "" && m.format != formatText && m.format != formatJSON
			return a.with(ctx, setup{group: group, policy: policy, elsewhere: elsewhere}, func(b *broker) error {
				plan, err := b.plan(ctx, topic)
				if err != nil {
					return failed(codeOf(err), "%w", err)
				}
				switch {
				case elsewhere:
					return a.make(plan, &m)
				case a.output == formatTable:
					return a.write(visibleLines(plan.text))
				default:
					return a.one(plan.row, nil)
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "the `topic` that is consumed; on RabbitMQ and SQS the queue (required)")
	flags.StringVar(&group, "group", "", "the consumer `group` (on Kafka required; elsewhere there is none)")
	flags.StringVar(&m.format, "format", "", strings.Join(allFormats(), ", ")+"; --output does as well for the first two")
	flags.StringVar(&m.principal, "principal", "", "whose rights are written: Kafka's `User:name`, or RabbitMQ's user")
	flags.StringVar(&m.whose, "for", forConsumer, "whose rights: consumer, or operator, who works on the DLQ")
	flags.StringVar(&m.account, "account", "", "the `number` of the AWS account, where no queue is there yet (iam)")
	p.flags(flags)
	complete(cmd, "format", cobra.FixedCompletions(allFormats(), cobra.ShellCompDirectiveNoFileComp))
	complete(cmd, "for", cobra.FixedCompletions([]string{forConsumer, forOperator}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// make writes a plan for who makes it without redeliver.
func (a *app) make(plan *planned, m *making) error {
	text, notes, err := plan.makers[m.format](m)
	if err != nil {
		return err
	}
	for _, n := range notes {
		a.sayf("note: %s", n)
	}
	return a.write(text)
}

// codeOf is the code of a plan that was refused: the call was not wrong, unless it
// says so itself.
func codeOf(err error) int {
	if f, ok := asFailure(err); ok {
		return f.code
	}
	return codeFailed
}
