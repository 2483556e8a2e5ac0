package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

func (a *app) export() *cobra.Command {
	var s subjectFlags
	var f filterFlags
	var path string
	cmd := &cobra.Command{
		Use: "export [DLQ]", Short: "Write messages of a DLQ as JSON Lines, which import reads", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `export writes what the flags take as JSON Lines, all bytes in base64: everything that
import needs. Nothing is taken out of the DLQ. --output does not change the format.`,
		Example: "  redeliver dlq export orders.billing.dlq --before 2026-01-01 > january.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) (err error) {
				out := a.Out
				if path != "" && path != "-" {
					file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // the bodies are somebody's
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
				a.looking(q)
				n, err := deadletter.Export(ctx, q, filter, &harmlessLines{w: out})
				a.sayf("%d messages exported from %s", n, q.Info().DLQ)
				if err != nil && n > 0 && ctx.Err() == nil {
					return failed(codePartly, "the export is not complete: %w", err)
				}
				return err
			})
		},
	}
	s.flags(cmd)
	f.flags(cmd.Flags())
	cmd.Flags().StringVar(&path, "file", "", "write to this `file`, which must not exist yet (default stdout)")
	return cmd
}

func (a *app) imports() *cobra.Command {
	var s subjectFlags
	var sign signFlags
	var path string
	var dry, yes bool
	cmd := &cobra.Command{
		Use: "import [DLQ] --note WHY", Short: "Write what was exported back into a DLQ", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Long: `import writes messages into the DLQ of the same origin and group, as they were. One that
is broken off and run again writes its first part twice.`,
		Example: "  redeliver dlq import orders.billing.dlq --file january.jsonl --note 'purged by mistake'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.sign(&sign, dry); err != nil {
				return err
			}
			if !dry {
				if err := a.unasked(cmd, yes); err != nil {
					return err
				}
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
				return usagef("the messages come from stdin, where you would be asked: give --yes, or --file")
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				if dry {
					return a.dryImport(ctx, q, in)
				}
				if !yes {
					if err := a.confirm(ctx, "y", "write what is in %s into %s?", path, q.Info().DLQ); err != nil {
						return err
					}
				}
				t, err := deadletter.Import(ctx, q, in, sign.who, sign.note)
				if t.ID == "" {
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
	flags.StringVar(&path, "file", "", "read from this `file` (default stdin)")
	flags.BoolVar(&dry, "dry-run", false, "read all of it, say how many, and write nothing")
	yesFlag(cmd, &yes)
	return cmd
}

// importRow is what an import would do.
type importRow struct {
	DryRun bool   `json:"dry_run"`
	DLQ    string `json:"dlq"`
	Import int64  `json:"import"` // messages that would be written
}

// dryImport reads an import to its end over a DLQ that takes nothing.
func (a *app) dryImport(ctx context.Context, q deadletter.Queue, in io.Reader) error {
	t, err := deadletter.Import(ctx, untouched{q}, in, "nobody", "dry run")
	if err != nil {
		return fmt.Errorf("behind %d messages that would be written: %w", t.Counts.Imported, err)
	}
	row := importRow{true, q.Info().DLQ, t.Counts.Imported}
	return a.one(row, func(c *card) {
		c.line("dlq", row.DLQ)
		c.line("would import", row.Import)
	})
}

// untouched is a DLQ that a dry run may claim: what is written there goes nowhere.
type untouched struct{ deadletter.Queue }

// Claim implements [deadletter.Queue].
func (untouched) Claim(context.Context, deadletter.Holder) (deadletter.Claim, error) {
	return nowhere{}, nil
}

type nowhere struct{}

var errDry = errors.New("a dry run only writes")

func (nowhere) Scan(context.Context, deadletter.From) (deadletter.Scan, error) { return nil, errDry }

func (nowhere) Send(_ context.Context, msgs []*deadletter.Message) []error {
	return make([]error, len(msgs))
}

func (nowhere) Add(_ context.Context, msgs []*deadletter.Message) []error {
	return make([]error, len(msgs))
}

func (nowhere) Settle(context.Context, deadletter.Task, []deadletter.Settlement) error { return errDry }
func (nowhere) Save(context.Context, deadletter.Task) error                            { return nil }
func (nowhere) Wanted(context.Context, string) (deadletter.Wanted, error) {
	return deadletter.GoOn, nil
}
func (nowhere) Release(context.Context) error { return nil }
