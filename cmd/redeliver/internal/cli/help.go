package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of flags in the help. A flag without a group belongs to only one verb.
const (
	groupDLQ          = "DLQ"
	groupSubscription = "Subscription"
	groupFilter       = "Filter"
	groupHandler      = "Handler"
	groupAccess       = "Access"
	groupMonitoring   = "Monitoring"
	groupChange       = "Change"
	groupPolicy       = "Policy"
	groupConnection   = "Connection"
	groupOutput       = "Output"
)

var flagGroups = []string{ // in the order of the help
	groupDLQ, groupSubscription, groupFilter, "", groupHandler, groupChange, groupPolicy, groupAccess, groupMonitoring, groupConnection, groupOutput,
}

// helpWidth is the width of the help in columns.
const helpWidth = 100

// groupKey is the annotation with a flag's group.
const groupKey = "group"

// grouped adds flags under a heading of the help. It omits those that the verb has already defined.
func grouped(flags *pflag.FlagSet, group string, add func(*pflag.FlagSet)) {
	part := pflag.NewFlagSet(group, pflag.ContinueOnError)
	part.SortFlags = false
	add(part)
	part.VisitAll(func(f *pflag.Flag) {
		f.Annotations = map[string][]string{groupKey: {group}}
		if flags.Lookup(f.Name) == nil {
			flags.AddFlag(f)
		}
	})
}

// help prints a command's help to stdout.
func help(cmd *cobra.Command, _ []string) {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	b.WriteString(cmp.Or(cmd.Long, cmd.Short+".") + "\n\nUsage:\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("  " + cmd.CommandPath() + " COMMAND\n\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	} else {
		b.WriteString("  " + cmd.UseLine() + "\n")
	}
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	for _, group := range flagGroups {
		part := pflag.NewFlagSet(group, pflag.ContinueOnError)
		part.SortFlags = false
		pick := func(f *pflag.Flag) {
			of := strings.Join(f.Annotations[groupKey], "")
			if f.Name == "help" && cmd.Flags().Lookup("output") != nil {
				of = groupOutput
			}
			if of == group && part.Lookup(f.Name) == nil {
				part.AddFlag(f)
			}
		}
		cmd.LocalFlags().VisitAll(pick)
		pick(cmd.Flag("help"))
		if part.HasFlags() {
			heading := "Flags"
			if group != "" {
				heading = group + " flags"
			}
			fmt.Fprintf(&b, "\n%s:\n%s", heading, part.FlagUsagesWrapped(helpWidth))
		}
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nRun \"%s COMMAND --help\" for the help of a command.\n", cmd.CommandPath())
	}
	fmt.Fprint(cmd.OutOrStdout(), b.String())
}

// refuseUnknownVerbs lets a command with subcommands print its help, and refuse an unknown verb.
func refuseUnknownVerbs(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names, deeper []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
			for _, leaf := range leaves(sub.Commands()) {
				if leaf.Name() == args[0] {
					deeper = append(deeper, strings.TrimPrefix(leaf.CommandPath(), cmd.CommandPath()+" "))
				}
			}
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint("", append(similar(args[0], names), deeper...)))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// wrongFlag returns the error of a flag that cannot be parsed.
func wrongFlag(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if kind := kinds[wrong.GetFlag().Value.Type()]; kind != "" {
			return fmt.Errorf("--%s is %q: must be %s", wrong.GetFlag().Name, wrong.GetValue(), kind)
		}
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), didYouMean(unknown.GetSpecifiedName(), "--", names))
}

// kinds describes the values of flags by their type.
var kinds = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false",
	"duration": "a duration such as 90s or 2h", "durationSlice": "durations such as 10s,1m,1h", "intSlice": "whole numbers such as 1,10,100",
}

// didYouMean returns a hint with the names similar to given.
func didYouMean(given, prefix string, names []string) string {
	return hint(prefix, similar(given, names))
}

// similar returns the names that are similar to given.
func similar(given string, names []string) []string {
	like := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra compares command names
	for _, name := range names {
		like.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	return like.SuggestionsFor(given)
}

// hint returns the end of an error that asks whether the user meant one of these names.
func hint(prefix string, found []string) string {
	if len(found) == 0 {
		return ""
	}
	return ". Did you mean " + prefix + strings.Join(found, " or "+prefix) + "?"
}

// mustBeOneOf refuses a value that is not in values.
func mustBeOneOf(flag, given string, values []string) error {
	if slices.Contains(values, given) {
		return nil
	}
	return usagef("--%s is %q: must be one of %s%s", flag, given, strings.Join(values, ", "), didYouMean(given, "", values))
}

// complete sets the shell completion of a flag.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

// oneOf sets the shell completion of a flag to a list of values.
func oneOf(cmd *cobra.Command, flag string, values ...string) {
	complete(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeNoFiles disables file completion for flags whose value is not a file.
func completeNoFiles(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		_, has := cmd.GetFlagCompletionFunc(f.Name)
		if kind, _ := pflag.UnquoteUsage(f); !has && kind != "file" {
			complete(cmd, f.Name, cobra.NoFileCompletions)
		}
	})
	if cmd.ValidArgsFunction == nil && cmd.Name() != "run" {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// completionCommand prints the scripts that cobra generates. It replaces cobra's own command, which has one subcommand
// for each shell.
func completionCommand() *cobra.Command {
	scripts := map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":        (*cobra.Command).GenZshCompletion,
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
	}
	shells := slices.Sorted(maps.Keys(scripts))
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print the script that completes commands in a shell",
		Long: `Print the script that makes a shell complete commands, flags, DLQs and profiles. SHELL is bash,
fish, powershell or zsh. The script for bash needs the package bash-completion. For the names
of DLQs the script asks the broker.`,
		Example: `  source <(redeliver completion bash)
  redeliver completion bash > /etc/bash_completion.d/redeliver
  redeliver completion zsh > "${fpath[1]}/_redeliver"
  redeliver completion fish > ~/.config/fish/completions/redeliver.fish
  redeliver completion powershell | Out-String | Invoke-Expression`,
		Args: exactly("the name of a shell"), ValidArgsFunction: cobra.FixedCompletions(shells, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			script := scripts[args[0]]
			if script == nil {
				return usagef("unknown shell %q: must be one of %s%s", args[0], strings.Join(shells, ", "), didYouMean(args[0], "", shells))
			}
			return script(cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// refineHelpCommand makes the command help refuse an unknown command.
func refineHelpCommand(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	cmd, _, _ := root.Find([]string{"help"})
	cmd.Use, cmd.Short, cmd.Long, cmd.Run = "help [COMMAND]...", "Show the help of a command", "", nil
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		of, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = of.ValidateArgs(rest)
		}
		if err != nil {
			return usagef("%w", err)
		}
		return of.Help()
	}
}

// leaves returns the commands that have no subcommands.
func leaves(cmds []*cobra.Command) (all []*cobra.Command) {
	for _, cmd := range cmds {
		if cmd.HasSubCommands() {
			all = append(all, leaves(cmd.Commands())...)
		} else {
			all = append(all, cmd)
		}
	}
	return all
}
