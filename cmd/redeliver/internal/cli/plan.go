package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/mq"
)

// planned is a plan in all formats.
type planned struct {
	row        planRow
	text       string                   // as the adapter formats it
	formatters map[string]planFormatter // by format
}

// planRow is what plan prints for every broker.
type planRow struct {
	Broker      string     `json:"broker"`
	Origin      string     `json:"origin"`          // the topic or queue
	Group       string     `json:"group,omitempty"` // Kafka only
	Places      []placeRow `json:"places"`          // the topics or queues that are used
	Delays      []delayRow `json:"delays"`          // before the planned retries, in order
	LongestWait string     `json:"longest_wait"`    // the maximum that a handler may request
	Notes       []string   `json:"notes,omitempty"`
	NotChecked  []string   `json:"not_checked,omitempty"`
}

// placeRow is a topic or queue of a plan.
type placeRow struct {
	Name       string         `json:"name"`
	Kind       string         `json:"kind"`            // delay, retry, dlq; on some brokers also queue, suspects
	Level      string         `json:"level,omitempty"` // of a delay topic or queue, such as 1m30s
	Partitions int32          `json:"partitions,omitempty"`
	Replicas   int16          `json:"replicas,omitempty"`
	Settings   map[string]any `json:"settings,omitempty"` // topic settings, queue arguments, attributes
	Exists     bool           `json:"exists"`             // false: it will be created at start or later
	Later      bool           `json:"later,omitempty"`    // it is created when a wait first needs it
	Old        bool           `json:"old,omitempty"`      // of an older policy
	Messages   *int64         `json:"messages,omitempty"` // absent if unknown
}

// delayRow is the wait before one retry.
type delayRow struct {
	Retry     int      `json:"retry"` // 1 for the first retry
	After     string   `json:"after"` // without jitter; 0s for an immediate retry
	Jitter    string   `json:"jitter"`
	Hops      []string `json:"hops"` // the levels on which it waits
	Mechanism string   `json:"mechanism"`
}

// newPlanned returns a plan in all formats.
func newPlanned(kind brokerurl.Broker, p *mq.Plan, formatters map[string]planFormatter) *planned {
	row := planRow{Broker: string(kind), Origin: p.Origin, Group: p.Group, LongestWait: p.LongestWait.String(), Notes: p.Notes, NotChecked: p.NotChecked}
	for _, t := range p.Places {
		row.Places = append(row.Places, placeRow{
			Name: t.Name, Kind: t.Kind, Level: levelText(t.Level), Partitions: t.Partitions, Replicas: t.Replicas, Settings: t.Settings,
			Exists: t.Exists, Later: t.OnDemand, Old: t.Old, Messages: countOrNil(t.Messages),
		})
	}
	for _, d := range p.Delays {
		delay := delayRow{Retry: d.Retry, After: d.Delay.String(), Jitter: d.Jitter.String(), Hops: []string{}, Mechanism: d.Mechanism}
		for _, h := range d.Hops {
			delay.Hops = append(delay.Hops, delayqueue.LevelName(h))
		}
		row.Delays = append(row.Delays, delay)
	}
	return &planned{row, p.String(), formatters}
}

// addSkips adds the messages that the handler does not get.
func (p *planned) addSkips(all []string) {
	for _, skips := range all {
		note := "skips " + skips + ": they are acked, and the handler does not get them"
		p.row.Notes = append(p.row.Notes, note)
		p.text += "note: " + note + "\n"
	}
}

func levelText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return delayqueue.LevelName(d)
}

// countOrNil returns a number of messages, or nil for -1, which means unknown.
func countOrNil(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func planCommand(a *app) *cobra.Command {
	var s subscriptionFlags
	var m formatFlags
	var p processFlags
	cmd := &cobra.Command{
		Use:   "plan --topic TOPIC [--group GROUP] | --file FILE",
		Short: "Show how a policy waits and what it would create",
		Long: `Show the topics or queues that a subscription with this policy uses and creates, and how
each retry waits. plan reads from the broker and creates nothing. If the broker cannot
support the policy, plan reports all problems and ends with exit code 1.

If only an administrator may create topics and queues, --format writes down what to create:
kafka-topics and kafka-acls are shell scripts for Kafka's tools, rabbitmq-definitions is a
file for "rabbitmqctl import_definitions", sqs-cloudformation is a template of the missing
queues, and iam is an IAM policy. The rights are the fewest that a consumer with
NoProvisioning needs, or with --for operator those of a person who works on the DLQ.`,
		Example: `  redeliver plan --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h
  redeliver plan --broker kafka://localhost:9092 --topic orders --group billing --format kafka-acls --principal User:billing`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.file != "" {
				return a.planFile(cmd, &p, m.format)
			}
			to, kind, err := a.subscription(cmd, &s)
			if err != nil {
				return err
			}
			if err := m.check(kind); err != nil {
				return err
			}
			to.forAdministrator = m.format != ""
			if to.forAdministrator && cmd.Flags().Changed("output") {
				return usagef("--format %s writes a file in its own format: omit --output", m.format)
			}
			return a.withBroker(cmd.Context(), to, func(b *broker) error {
				plan, err := b.plan(cmd.Context(), s.topic)
				if err != nil {
					return brokerError(err)
				}
				switch {
				case to.forAdministrator:
					return a.writePlan(plan, &m)
				case a.output == formatTable:
					return a.write(visibleLines(plan.text))
				default:
					return a.printOne(plan.row, nil)
				}
			})
		},
	}
	s.flags(cmd)
	grouped(cmd.Flags(), groupSubscription, func(flags *pflag.FlagSet) {
		flags.StringVar(&p.file, "file", "", "Plan each subscription of this YAML `file`, see redeliver run")
	})
	flags := cmd.Flags()
	flags.StringVar(&m.format, "format", "", "Write down what to create, in this `format`: "+strings.Join(allFormats(), ", "))
	flags.StringVar(&m.principal, "principal", "", "Write the rights of this `user`: User:name on Kafka, the user's name on RabbitMQ")
	flags.StringVar(&m.role, "for", forConsumer, "Write the rights of this `role`: consumer, or operator for a person who works on the DLQ")
	flags.StringVar(&m.account, "account", "", "SQS, with --format iam: the `number` of the AWS account, if no queue exists yet")
	oneOf(cmd, "format", allFormats()...)
	oneOf(cmd, "for", forConsumer, forOperator)
	return cmd
}

// planFile prints the plans of a file of subscriptions. Its error has the problems of all.
func (a *app) planFile(cmd *cobra.Command, p *processFlags, format string) error {
	if format != "" {
		return usagef("--format and --file exclude each other: write one file for each subscription, with --topic")
	}
	all, err := a.readFile(cmd, p)
	if err != nil {
		return err
	}
	var errs []error
	var texts []string
	plans := a.list()
	for _, s := range all {
		for _, topic := range s.c.Topics {
			if err := s.withBroker(cmd.Context(), setup{group: s.c.Group, policy: s.c.Policy}, func(b *broker) error {
				plan, err := b.plan(cmd.Context(), topic)
				if err != nil {
					return err
				}
				plan.addSkips(s.c.Filter.Describe())
				texts = append(texts, visibleLines(plan.text))
				return plans.add(plan.row)
			}); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.name(), s.conn.withAddress(err)))
			}
		}
	}
	if a.output == formatTable {
		err = a.write(strings.Join(texts, "\n"))
	} else {
		err = plans.end()
	}
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return brokerError(errors.Join(errs...))
	}
	return nil
}

// writePlan writes a plan for an administrator.
func (p *printer) writePlan(plan *planned, m *formatFlags) error {
	text, notes, err := plan.formatters[m.format](m)
	if err != nil {
		return err
	}
	for _, n := range notes {
		p.sayf("note: %s", n)
	}
	return p.write(text)
}
