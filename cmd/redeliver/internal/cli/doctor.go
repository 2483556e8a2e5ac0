package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/delayqueue"
)

// doctorRow is what doctor has found of one subscription.
type doctorRow struct {
	Broker     string       `json:"broker"`
	Origin     string       `json:"origin"`          // the topic or queue
	Group      string       `json:"group,omitempty"` // of Kafka
	Findings   []symptomRow `json:"findings"`        // empty where nothing was found
	Checked    []string     `json:"checked"`
	NotChecked []string     `json:"not_checked"` // may be well or not
}

// symptomRow is one thing that somebody should see to.
type symptomRow struct {
	// Kind is missing, settings, retention, orphan, late, policies, consumer.
	Kind  string `json:"kind"`
	Place string `json:"place"` // the topic, queue or group
	Text  string `json:"text"`
}

func (a *app) doctor() *cobra.Command {
	var p policyFlags
	var topic, group string
	var late time.Duration
	cmd := &cobra.Command{
		Use: "doctor --topic T [--group G]", Short: "Find what is wrong with a subscription: exit code 3", Args: exactly(),
		Long: `doctor looks at a subscription from outside, changes nothing, and ends with exit code 3
when it finds something: a topic or queue that is missing, or forgets what waits; levels
that a change of the policy has left; messages that are due and do not run; members of a
group that run different policies; messages that nobody reads. What the broker does not
tell is "not checked", and may be well or not.

With the policy of the service (the flags of plan) the levels are compared with it.
Without, those that are there count as its own.`,
		Example: `  redeliver doctor --broker kafka://localhost:9092 --topic orders --group billing
  redeliver doctor --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h --output json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			policy, err := p.policy(cmd.Flags())
			if err != nil {
				return err
			}
			switch {
			case topic == "":
				return usagef("which topic, or queue? give --topic")
			case late < 0:
				return usagef("--late is %s: must not be negative", late)
			}
			u, err := a.conn.url(a.Env) // reads the profile
			if err != nil {
				return err
			}
			if err := noGroup(u.Broker, group); err != nil {
				return err
			}
			group = cmp.Or(group, a.conn.read.Group)
			how := delayqueue.Examination{Late: late, AnyPolicy: !p.given(cmd.Flags())}
			return a.with(ctx, setup{group: group, policy: policy}, func(b *broker) error {
				row, err := b.examine(ctx, topic, how)
				if err != nil {
					return failed(codeOf(err), "%w", err)
				}
				if err := a.one(row, row.draw); err != nil {
					return err
				}
				if n := len(row.Findings); n > 0 {
					return failed(codeFound, "%d findings want looking at", n)
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&topic, "topic", "", "the `topic` that is consumed; on RabbitMQ and SQS the queue (required)")
	flags.StringVar(&group, "group", "", "the consumer `group` (on Kafka required; elsewhere there is none)")
	flags.DurationVar(&late, "late", delayqueue.DefaultLate, "how long a message may have been due; a handler may work on it")
	p.flags(flags)
	return cmd
}

// given tells whether anything is said of the policy.
func (p *policyFlags) given(flags *pflag.FlagSet) bool {
	var own policyFlags
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.flags(all)
	said := false
	flags.Visit(func(f *pflag.Flag) { said = said || all.Lookup(f.Name) != nil })
	return said
}

// examine asks the broker's doctor.
func (b *broker) examine(ctx context.Context, topic string, how delayqueue.Examination) (*doctorRow, error) {
	found, err := b.doctor(ctx, topic, how)
	if err != nil {
		return nil, err
	}
	row := &doctorRow{
		Broker: string(b.kind), Origin: found.Origin, Findings: []symptomRow{},
		Checked: append([]string{}, found.Checked...), NotChecked: append([]string{}, found.NotChecked...),
	}
	if found.Group != found.Origin {
		row.Group = found.Group
	}
	for _, s := range found.Symptoms {
		row.Findings = append(row.Findings, symptomRow{string(s.Kind), s.Place, s.Text})
	}
	return row, nil
}

func (r *doctorRow) draw(c *card) {
	c.line("origin", r.Origin)
	c.line("group", r.Group)
	if len(r.Findings) == 0 {
		c.line("found", "nothing, of what was checked")
	}
	g := newGrid(false, []string{"KIND", "PLACE", "FINDING"})
	for _, f := range r.Findings {
		g.add([]any{f.Kind, f.Place, f.Text})
	}
	c.table("found", g)
	c.list("checked", r.Checked)
	c.list("not checked", r.NotChecked)
}

// list adds texts under a heading, one in a line.
func (c *card) list(heading string, texts []string) {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(visible(t) + "\n")
	}
	if len(texts) > 0 {
		c.text(heading, b.String())
	}
}
