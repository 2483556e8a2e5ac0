package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of flags in the help. A flag without a group belongs to only one verb.
const (
	groupDLQ        = "DLQ"
	groupFilter     = "Filter"
	groupHandler    = "Handler"
	groupMonitoring = "Monitoring"
	groupWork       = "Work"
	groupPolicy     = "Policy"
	groupConnection = "Connection"
	groupOutput     = "Output"
)

var flagGroups = []string{groupDLQ, groupFilter, "", groupHandler, groupWork, groupPolicy, groupMonitoring, groupConnection, groupOutput} // in the order of the help

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
	b.WriteString(cmp.Or(cmd.Long, cmd.Short) + "\n\nUsage:\n")
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
			if of == group {
				part.AddFlag(f)
			}
		}
		cmd.LocalNonPersistentFlags().VisitAll(pick)
		if f := cmd.Flag("help"); f != nil {
			pick(f)
		}
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

// verbs makes a command that only groups others print its help, and refuse an unknown verb.
func verbs(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		names := []string{}
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), didYouMean(args[0], "", names))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// wrongFlag returns the error of a flag that cannot be parsed.
func wrongFlag(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), didYouMean(unknown.GetSpecifiedName(), "--", names))
}

// didYouMean returns a hint with the names similar to given.
func didYouMean(given, prefix string, names []string) string {
	like := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra compares command names
	for _, name := range names {
		like.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	found := like.SuggestionsFor(given)
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
