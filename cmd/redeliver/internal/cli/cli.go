// Package cli is the command redeliver: its verbs (subcommands), their output and their exit codes. It is a package so
// that tests can run it in their process.
//
// Start with cli.go and help.go for the framework, connect.go for finding a broker, broker.go for its functions, and
// output.go for the output. Every other file is one verb, or flags that several verbs share.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// Streams is the environment of the command. Data goes to Out, and everything else to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Env returns an environment variable.
	Env func(string) string
	// These report whether the streams are terminals.
	InTerminal, OutTerminal, ErrTerminal bool
	// Screen is the terminal of In and Out. It is nil if they are not terminals.
	Screen Screen
	// MaxClose is how long a command waits for its broker and its handlers at the end. Default: 5 s.
	MaxClose time.Duration
}

func (s *Streams) maxClose() time.Duration { return cmp.Or(s.MaxClose, 5*time.Second) }

// Screen is a terminal on which a program draws.
type Screen interface {
	// Size returns the numbers of columns and rows.
	Size() (width, height int)
	// Raw passes each key to the program immediately, until restore is called.
	Raw() (restore func(), err error)
}

// app is one run of the command.
type app struct {
	printer

	conn  connection
	began bool // the arguments are valid, and the verb runs
}

// Run runs the command and returns its exit code. Ctrl-C ends ctx.
func Run(ctx context.Context, args []string, s Streams) int {
	a := &app{printer: printer{Streams: s}}
	root := rootCommand(a)
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	called, err := root.ExecuteContextC(ctx)
	return a.exit(ctx, called.CommandPath(), err)
}

// dependentFlags are flags that mean nothing without another flag of the command.
var dependentFlags = map[string]string{
	"account": "format", "for": "format", "principal": "format", "event-source": "event-type", "event-type": "cloudevents", "max-timeout": "health",
	"grant": "behind-proxy", "user-header": "behind-proxy", "groups-header": "behind-proxy", "proxy-secret-file": "behind-proxy", "watch": "canary",
	"between": "unattended", "through-timeout": "through",
}

// checkDependentFlags refuses a flag that would do nothing.
func checkDependentFlags(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if other := flags.Lookup(dependentFlags[f.Name]); other != nil && !other.Changed && err == nil {
			err = usagef("--%s means nothing without --%s: give both, or neither", f.Name, other.Name)
		}
	})
	return err
}

// keepOrder makes cobra list commands in the order of their definition.
var keepOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

func rootCommand(a *app) *cobra.Command {
	keepOrder()
	root := &cobra.Command{
		Use:   "redeliver",
		Short: "Inspect and replay dead-letter queues, and add retries to any consumer",
		Long: `redeliver inspects the dead-letter queues (DLQs) of a broker, replays their messages to
the consumer group that failed them, and runs any program as a handler with retries.

A broker is a URL: kafka://host:9092[,host2:9092], amqp://user@host:5672/vhost or
sqs://REGION. With TLS it is kafka+tls://user@host:9093?sasl=scram-sha-512 or amqps://.
For share groups of Kafka it is kafka+share:// or kafka+share+tls://.
Give it as --broker or $REDELIVER_BROKER, or run "redeliver init" to write a profile.
Keep the password out of the URL: use --password-file or $REDELIVER_PASSWORD.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 found a problem, 5 partly done,
130 interrupted.`,
		Version:       built().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(a.checkFormat(), checkDependentFlags(cmd.Flags())); err != nil {
				return err
			}
			a.began = true
			return nil
		},
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetVersionTemplate("redeliver {{.Version}}\n")
	root.Flags().Bool("version", false, "Print the version and exit")
	root.PersistentFlags().BoolP("help", "h", false, "Show this help")
	connected := []*cobra.Command{dlqCommand(a), waitingCommand(a), topCommand(a), runCommand(a), publishCommand(a), a.console(), exporterCommand(a), planCommand(a), doctorCommand(a), pauseGroupCommand(a), resumeGroupCommand(a)}
	local := []*cobra.Command{initCommand(a), readyCommand(a), simulateCommand(a), versionCommand(a)}
	for _, cmd := range leaves(connected) {
		grouped(cmd.Flags(), groupConnection, a.conn.flags)
		complete(cmd, "profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return a.conn.profileNames(a.Env), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for _, cmd := range leaves(append(connected, local...)) {
		grouped(cmd.Flags(), groupOutput, func(flags *pflag.FlagSet) {
			flags.StringVarP(&a.output, "output", "o", formatTable, "Print the result in this `format`: table, json, jsonl or yaml")
			flags.StringVar(&a.color, "color", colorAuto, "Color the tables in this `mode`: auto (on a terminal, unless $NO_COLOR is set), always or never")
		})
		oneOf(cmd, "output", formats...)
		oneOf(cmd, "color", colorModes...)
		completeNoFiles(cmd)
		cmd.Flags().SortFlags = false // the help lists flags in the order of their definition
	}
	root.AddCommand(append(connected, local...)...)
	root.AddCommand(completionCommand())
	refineHelpCommand(root)
	root.SetHelpFunc(help)
	root.SetFlagErrorFunc(wrongFlag)
	refuseUnknownVerbs(root)
	return root
}

// atMostOne accepts one argument or none, and names it in its error.
func atMostOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("this command takes %s; %d arguments were given", name, len(args))
		}
		return nil
	}
}

// exactly requires exactly these arguments and names them in its error.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == len(names):
			return nil
		case len(names) == 0:
			return fmt.Errorf("unexpected argument %q: this command takes only flags", args[0])
		default:
			return fmt.Errorf("this command takes %s; %d arguments were given", strings.Join(names, " and "), len(args))
		}
	}
}

// exit reports an error and returns the exit code.
func (a *app) exit(ctx context.Context, called string, err error) int {
	if err == nil {
		return codeDone
	}
	code := codeFailed
	err = a.conn.withAddress(err)
	f, ok := asFailure(err)
	if ok {
		code = f.code
	} else if !a.began || errors.Is(err, redeliver.ErrConfig) {
		code = codeUsage
	}
	if code == codeFailed && ctx.Err() != nil && !(ok && f.final) {
		code = codeInterrupted
	}
	// An error may quote a URL with a password, from a mistyped flag. Names on a broker are untrusted.
	fmt.Fprintf(a.Err, "redeliver: %s\n", visibleLines(redeliver.Redact(inFlags(err))))
	if code == codeUsage {
		fmt.Fprintf(a.Err, "Run \"%s --help\" for usage.\n", called)
	}
	return code
}
