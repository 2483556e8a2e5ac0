package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

// diffRow is what an edit would change.
type diffRow struct {
	DryRun   bool   `json:"dry_run"`
	DLQ      string `json:"dlq"`
	ReplayTo string `json:"replay_to"`
	*deadletter.Diff
}

func editCommand(a *app) *cobra.Command {
	var s subjectFlags
	var sign signature
	var position, id, body string
	var set, remove []string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "edit [DLQ] --position POSITION --note TEXT", Short: "Replay one message with a changed body or headers", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `Replay one message to its group with a changed body or changed headers.

The original stays in the DLQ until the changed copy is confirmed, and the task history
records what changed. The key, the id and redeliver's own headers cannot be changed.`,
		Example: `  redeliver dlq show orders.billing.dlq --position 0/17 --raw > body.json
  redeliver dlq edit orders.billing.dlq --position 0/17 --body-file body.json --set currency=EUR --note 'the shop sent euro as EURO'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := deadletter.EditOptions{Position: deadletter.Position(position), ID: id, Remove: remove}
			for _, h := range set {
				name, value, ok := strings.Cut(h, "=")
				if !ok || name == "" {
					return usagef("--set is %q: must be name=value", h)
				}
				c.Set = append(c.Set, deadletter.Header{Name: name, Value: []byte(value)})
			}
			if position == "" {
				return missing("--position", "the message, as \"dlq show\" prints it")
			}
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			c.Who, c.Why = sign.who, cmp.Or(sign.note, "dry run")
			if err := a.checkConfirmable(cmd, dry || yes); err != nil {
				return err
			}
			if body == "-" && !dry && !yes {
				return usagef("--body-file - reads the body from stdin, so nobody can confirm: give --yes, or a file")
			}
			if err := a.readBody(&c, body); err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				if dry || !yes {
					a.warnReadEffect(q)
					diff, err := deadletter.DryEdit(ctx, q, c)
					if err != nil {
						return err
					}
					if dry {
						return a.printOne(diffRow{true, q.Info().DLQ, q.Info().ReplayTo, diff}, func(c *details) { drawDiff(c, diff) })
					}
					c := &details{}
					drawDiff(c, diff)
					asked := a.printer
					asked.Out, asked.OutTerminal = a.Err, a.ErrTerminal // the diff is part of the question, not data
					if err := c.print(&asked); err != nil {
						return err
					}
					if err := a.confirm(ctx, "y", fmt.Sprintf("Replay %s of %s to %s with these changes?", position, q.Info().DLQ, q.Info().ReplayTo)); err != nil {
						return err
					}
				}
				t, err := deadletter.Edit(ctx, q, c)
				if t.Diff == nil { // nothing was sent
					return err
				}
				return a.printEnded(ctx, q, &t, err)
			})
		},
	}
	s.flags(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&position, "position", "", "Edit the message at this `position`, as \"dlq show\" prints it (required)")
	flags.StringVar(&id, "id", "", "Refuse unless the message at --position has this `id`")
	flags.StringVar(&body, "body-file", "", "Read the new body from this `file`, - for stdin")
	flags.StringArrayVar(&set, "set", nil, "Set a header, `name=value`. Repeatable")
	flags.StringArrayVar(&remove, "remove", nil, "Remove the header with this `name`. Repeatable")
	grouped(flags, groupChange, func(flags *pflag.FlagSet) {
		sign.flags(flags)
		flags.BoolVar(&dry, "dry-run", false, "Show what would change and change nothing")
		yesFlag(flags, &yes)
		s.runner(flags)
	})
	return cmd
}

// readBody reads the new body, if one is given. An empty file is an empty body.
func (a *app) readBody(c *deadletter.EditOptions, from string) (err error) {
	switch from {
	case "":
		return nil
	case "-":
		c.Body, err = io.ReadAll(a.In)
	default:
		c.Body, err = os.ReadFile(from)
	}
	if err != nil {
		return usagef("reading the new body: %w", err)
	}
	if c.Body == nil {
		c.Body = []byte{}
	}
	return nil
}
