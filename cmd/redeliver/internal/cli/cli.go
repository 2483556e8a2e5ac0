// Package cli is the command redeliver: its verbs, what they print, and how they
// end. It is a package so that tests run it in their own process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
)

// Streams is what the command has of its surroundings. Data goes to Out and all
// else to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Env reads an environment variable.
	Env func(string) string
	// The streams that somebody sits before.
	InTerminal, OutTerminal, ErrTerminal bool
}

// app is one run of the command.
type app struct {
	Streams

	conn   connection
	output string // --output
	began  bool   // the arguments are understood, and the verb runs
}

// Run runs the command and returns its exit code. The end of ctx is what Ctrl-C is.
func Run(ctx context.Context, args []string, s Streams) int {
	a := &app{Streams: s}
	root := a.root()
	root.SetArgs(append([]string{}, args...)) // nil would be os.Args
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	called, err := root.ExecuteContextC(ctx)
	return a.exit(ctx, called.CommandPath(), err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "redeliver",
		Short: "Look into dead-letter queues, send messages back, and plan retries",
		Long: `redeliver looks into the dead-letter queues of a broker, sends messages back to
the group that failed them, and says how a policy would wait.

The broker is a URL: kafka://host:9092[,host2:9092], kafka+tls://user@host:9093?sasl=scram-sha-512,
amqp://user@host:5672/vhost, amqps://, sqs://REGION, sqs+http://host:9324.
A password does not belong on a command line: give --password-file, or REDELIVER_PASSWORD.

Exit codes: 0 done, 1 failed, 2 wrong call, 3 found something, 5 partly done, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := checkFormat(a.output); err != nil {
				return err
			}
			a.began = true
			return nil
		},
	}
	flags := root.PersistentFlags()
	a.conn.flags(flags)
	flags.StringVarP(&a.output, "output", "o", formatTable, "what is printed: table, json, jsonl or yaml")
	root.AddCommand(a.dlq(), a.plan(), a.doctor(), a.prune(), a.waiting(), a.sidecar(), a.console(), a.simulate(), a.ready(), a.version())
	verbs(root)
	complete(root, "output", cobra.FixedCompletions([]string{formatTable, formatJSON, formatJSONL, formatYAML}, cobra.ShellCompDirectiveNoFileComp))
	complete(root, "profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.conn.names(a.Env), cobra.ShellCompDirectiveNoFileComp
	})
	return root
}

// verbs makes a command that is nothing without one of its verbs say so.
func verbs(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("there is no verb %q in %s", args[0], cmd.CommandPath())
		if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
			text += ": is it " + strings.Join(like, " or ") + "?"
		}
		return errors.New(text)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(cmd.ErrOrStderr())
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("say what %s is to do", cmd.CommandPath())
	}
}

// complete gives a flag's values to the shell.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

// exactly refuses all but n arguments, and says which those are.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return fmt.Errorf("%q is too much: there are only flags", args[0])
		}
		return fmt.Errorf("there are %d arguments, not %d: it takes %s", len(args), len(names), strings.Join(names, " and "))
	}
}

// exit says what went wrong, and returns the code of how it ended.
func (a *app) exit(ctx context.Context, called string, err error) int {
	if err == nil {
		return codeDone
	}
	code := codeFailed
	err = a.conn.at(err)
	f, ok := asFailure(err)
	if ok {
		code = f.code
	} else if !a.began || errors.Is(err, redeliver.ErrConfig) {
		code = codeUsage
	}
	if code == codeFailed && ctx.Err() != nil && !(ok && f.final) {
		code = codeInterrupted
	}
	// Whoever mistypes a flag has a URL, with its password perhaps, in what the
	// error repeats; and names come from the broker, whoever made them.
	fmt.Fprintf(a.Err, "redeliver: %s\n", visibleLines(redeliver.Redact(inFlags(err))))
	if code == codeUsage {
		fmt.Fprintf(a.Err, "see %s --help\n", called)
	}
	return code
}

// sayf tells something that is not data.
func (a *app) sayf(format string, args ...any) {
	fmt.Fprintln(a.Err, visibleLines(fmt.Sprintf(format, args...)))
}
