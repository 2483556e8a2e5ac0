package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/doctor"
)

// doctorRow is the result of doctor for one subscription.
type doctorRow struct {
	Broker     string       `json:"broker"`
	Origin     string       `json:"origin"`          // the topic or queue
	Group      string       `json:"group,omitempty"` // Kafka only
	Findings   []symptomRow `json:"findings"`        // empty if there is no problem
	Checked    []string     `json:"checked"`
	NotChecked []string     `json:"not_checked"` // what the broker does not report
}

// symptomRow is one problem.
type symptomRow struct {
	// Kind is missing, settings, retention, orphan, late, policies, consumer, or paused.
	Kind  string `json:"kind"`
	Place string `json:"place"` // the topic, queue or group
	Text  string `json:"text"`
}

func doctorCommand(a *app) *cobra.Command {
	var of subscriptionFlags
	var late time.Duration
	cmd := &cobra.Command{
		Use: "doctor --topic TOPIC [--group GROUP]", Short: "Find problems of a subscription (exit code 3 if there are any)", Args: exactly(),
		Long: `Inspect a subscription from outside, and end with exit code 3 if there is a problem: a
topic or queue that is missing or drops messages, a level that the policy does not use (with
the command that deletes it), messages that are due and do not run, or messages that nobody
consumes. doctor changes nothing. It lists what the broker does not report as "not checked".

Give the policy of the service with the same flags as for plan, and doctor compares the
levels with it. Without them it accepts the levels that exist.`,
		Example: `  redeliver doctor --broker kafka://localhost:9092 --topic orders --group billing
  redeliver doctor --broker kafka://localhost:9092 --topic orders --group billing --retries 5 --backoff steps:10s,1m,1h --output json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if late < 0 {
				return usagef("--late is %s: must be 0 or more", late)
			}
			to, _, err := a.subscription(cmd, &of)
			if err != nil {
				return err
			}
			how := doctor.Examination{Late: late, AnyPolicy: !of.policy.given(cmd.Flags())}
			return a.withBroker(cmd.Context(), to, func(b *broker) error {
				row, err := b.examine(cmd.Context(), of.topic, how)
				if err != nil {
					return brokerError(err)
				}
				if err := a.printOne(row, row.draw); err != nil {
					return err
				}
				if n := len(row.Findings); n > 0 {
					return failed(codeFound, "problems found: %d", n)
				}
				return nil
			})
		},
	}
	of.flags(cmd)
	cmd.Flags().DurationVar(&late, "late", doctor.DefaultLate, "Report messages that have been due for longer than this `duration`")
	return cmd
}

// examine runs the doctor of the broker's adapter.
func (b *broker) examine(ctx context.Context, topic string, how doctor.Examination) (*doctorRow, error) {
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

func (r *doctorRow) draw(c *details) {
	c.line("origin", r.Origin)
	c.line("group", r.Group)
	if len(r.Findings) == 0 {
		c.line("problems", "none, of what was checked")
	}
	g := newGrid(false, []string{"KIND", "PLACE", "PROBLEM"})
	for _, f := range r.Findings {
		g.add([]any{state(f.Kind), f.Place, f.Text})
	}
	c.table("problems", g)
	c.list("checked", r.Checked)
	c.list("not checked", r.NotChecked)
}

// list adds texts under a heading, one per line.
func (c *details) list(heading string, texts []string) {
	var b strings.Builder
	for _, t := range texts {
		b.WriteString(visible(t) + "\n")
	}
	if len(texts) > 0 {
		c.text(heading, b.String())
	}
}
