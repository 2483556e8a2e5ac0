package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/deadletter"
)

func exportCommand(a *app) *cobra.Command {
	var s subjectFlags
	var f filterFlags
	var path string
	cmd := &cobra.Command{
		Use: "export [DLQ]", Short: "Write messages to a file that import reads", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `Write the messages that match the filter as JSON Lines, with bytes in base64. The file has
all that "dlq import" needs. The messages stay in the DLQ. --output does not change the format.`,
		Example: "  redeliver dlq export orders.billing.dlq --before 2026-01-01 > january.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) (err error) {
				out := a.Out
				if path != "" && path != "-" {
					file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // the bodies may be personal data
					if err != nil {
						return usagef("--file: %w", err)
					}
					defer func() {
						if bad := file.Close(); err == nil && bad != nil {
							err = fmt.Errorf("--file: %w", bad)
						}
					}()
					out = file
				}
				a.warnReadEffect(q)
				n, err := deadletter.Export(ctx, q, filter, &escapedLines{w: out})
				a.sayf("%d messages exported from %s", n, q.Info().DLQ)
				if err != nil && n > 0 && ctx.Err() == nil {
					return failed(codePartly, "the export is incomplete: %w", err)
				}
				return err
			})
		},
	}
	s.flags(cmd.Flags())
	f.flags(cmd, a.In)
	cmd.Flags().StringVar(&path, "file", "", "Write to this `file`, which must not exist (default stdout)")
	return cmd
}

func importCommand(a *app) *cobra.Command {
	var s subjectFlags
	var sign signature
	var path string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "import [DLQ] --note TEXT", Short: "Write exported messages back into a DLQ", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `Write exported messages back into the DLQ of the same origin and group, unchanged.

An import cannot be resumed. If you run it again after an interruption, it writes the first
messages twice.`,
		Example: "  redeliver dlq import orders.billing.dlq --file january.jsonl --note 'purged by mistake'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			if err := a.checkConfirmable(cmd, dry || yes); err != nil {
				return err
			}
			in := a.In
			switch {
			case path != "" && path != "-":
				file, err := os.Open(path)
				if err != nil {
					return usagef("--file: %w", err)
				}
				defer file.Close()
				in = file
			case !dry && !yes:
				return usagef("the messages come from stdin, so nobody can confirm: give --yes, or --file")
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				if dry {
					return a.dryImport(ctx, q, in)
				}
				if !yes {
					if err := a.confirm(ctx, "y", fmt.Sprintf("Write the messages in %s into %s?", path, q.Info().DLQ)); err != nil {
						return err
					}
				}
				t, err := deadletter.Import(ctx, q, in, deadletter.ImportOptions{Who: sign.who, Why: sign.note})
				if t.ID == "" {
					return err
				}
				return a.printEnded(ctx, q, &t, err)
			})
		},
	}
	s.flags(cmd.Flags())
	cmd.Flags().StringVar(&path, "file", "", "Read from this `file` (default stdin)")
	grouped(cmd.Flags(), groupChange, func(flags *pflag.FlagSet) {
		sign.flags(flags)
		flags.BoolVar(&dry, "dry-run", false, "Read and count all messages and write nothing")
		yesFlag(flags, &yes)
		s.runner(flags)
	})
	return cmd
}

// importRow is what an import would do.
type importRow struct {
	DryRun bool   `json:"dry_run"`
	DLQ    string `json:"dlq"`
	Import int64  `json:"import"` // messages that would be written
}

// dryImport reads a whole import into a DLQ that ignores writes.
func (p *printer) dryImport(ctx context.Context, q deadletter.Queue, in io.Reader) error {
	t, err := deadletter.Import(ctx, dryRunQueue{q}, in, deadletter.ImportOptions{Who: "nobody", Why: "dry run"})
	if err != nil {
		return fmt.Errorf("after %d messages that would be written: %w", t.Counts.Imported, err)
	}
	row := importRow{true, q.Info().DLQ, t.Counts.Imported}
	return p.printOne(row, func(c *details) {
		c.line("dlq", row.DLQ)
		c.line("would import", row.Import)
	})
}

// dryRunQueue is a DLQ that a dry run can claim and that ignores writes.
type dryRunQueue struct{ deadletter.Queue }

// Claim implements [deadletter.Queue].
func (dryRunQueue) Claim(context.Context, deadletter.Holder) (deadletter.Claim, error) {
	return dryRunClaim{}, nil
}

type dryRunClaim struct{}

var errDry = errors.New("a dry run only writes")

func (dryRunClaim) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	return nil, errDry
}

func (dryRunClaim) Send(_ context.Context, msgs []*deadletter.Message) []error {
	return make([]error, len(msgs))
}

func (dryRunClaim) Add(_ context.Context, msgs []*deadletter.Message) []error {
	return make([]error, len(msgs))
}

func (dryRunClaim) Settle(context.Context, deadletter.Task, []deadletter.Settlement) error {
	return errDry
}
func (dryRunClaim) Save(context.Context, deadletter.Task) error { return nil }
func (dryRunClaim) Requested(context.Context, string) (deadletter.Request, error) {
	return deadletter.RequestNone, nil
}
func (dryRunClaim) Release(context.Context) error { return nil }
