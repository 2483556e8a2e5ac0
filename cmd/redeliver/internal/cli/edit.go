package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// diffRow is what an edit would change.
type diffRow struct {
	DryRun bool   `json:"dry_run"`
	DLQ    string `json:"dlq"`
	Back   string `json:"back"`
	*deadletter.Diff
}

func (a *app) edit() *cobra.Command {
	var s subjectFlags
	var sign signFlags
	var position, id, body string
	var set, remove []string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "edit [DLQ] --position P --note WHY", Short: "Replay one message with another body or headers", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `edit sends one message back to its group with another body or other headers. The
original stays until the edited copy is confirmed, and what changed is recorded. The key,
the id and redeliver's own headers are locked.`,
		Example: `  redeliver dlq show orders.billing.dlq --position 0/17 --raw > body.json
  redeliver dlq edit orders.billing.dlq --position 0/17 --body-file body.json --set currency=EUR --note 'the shop sent euro as EURO'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := deadletter.Change{Position: deadletter.Position(position), ID: id, Remove: remove}
			for _, h := range set {
				name, value, ok := strings.Cut(h, "=")
				if !ok || name == "" {
					return usagef("--set is %q: write name=value", h)
				}
				c.Set = append(c.Set, deadletter.Header{Name: name, Value: []byte(value)})
			}
			if position == "" {
				return usagef("which message? give --position, as dlq show has it")
			}
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			c.Who, c.Why = sign.who, cmp.Or(sign.note, "dry run")
			if !dry {
				if err := a.unasked(cmd, yes); err != nil {
					return err
				}
			}
			if body == "-" && !dry && !yes {
				return usagef("the body comes from stdin, where you would be asked: give --yes, or the body in a file")
			}
			if err := a.readBody(&c, body); err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				if dry || !yes {
					a.looking(q)
					diff, err := deadletter.DryEdit(ctx, q, c)
					if err != nil {
						return err
					}
					if dry {
						return a.one(diffRow{true, q.Info().DLQ, q.Info().Back, diff}, func(c *card) { drawDiff(c, diff) })
					}
					c := &card{}
					drawDiff(c, diff)
					asked := *a
					asked.Out = a.Err // it is not the data that was asked for
					if err := c.print(&asked); err != nil {
						return err
					}
					if err := a.confirm(ctx, "y", "replay %s of %s to %s with that changed?", position, q.Info().DLQ, q.Info().Back); err != nil {
						return err
					}
				}
				t, err := deadletter.Edit(ctx, q, c)
				if t.Diff == nil { // nothing was sent
					return err
				}
				return a.ended(ctx, q, &t, err)
			})
		},
	}
	s.flags(cmd)
	sign.flags(cmd)
	flags := cmd.Flags()
	s.runner(flags)
	flags.StringVar(&position, "position", "", "where the message lies, as dlq show has it (required)")
	flags.StringVar(&id, "id", "", "refuse when the message there has not this `id`")
	flags.StringVar(&body, "body-file", "", "`file` with the new body, - for stdin")
	flags.StringArrayVar(&set, "set", nil, "a header that gets a new value, `name=value`; may be repeated")
	flags.StringArrayVar(&remove, "remove", nil, "the `name` of a header that is taken away; may be repeated")
	flags.BoolVar(&dry, "dry-run", false, "say what would change, and change nothing")
	yesFlag(cmd, &yes)
	return cmd
}

// readBody reads the new body, where one is given. An empty file is an empty body.
func (a *app) readBody(c *deadletter.Change, from string) (err error) {
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
