package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands returns the path of every command, without "redeliver".
func Commands() (paths []string) {
	var walk func(cmd *cobra.Command, path string)
	walk = func(cmd *cobra.Command, path string) {
		paths = append(paths, path)
		for _, sub := range cmd.Commands() {
			walk(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
	}
	walk(rootCommand(&app{printer: printer{Streams: Streams{Env: func(string) string { return "" }}}}), "")
	return paths
}

// RunKeys returns the keys of a file of subscriptions: those at its top, and those of a subscription.
func RunKeys() (top, section []string) {
	_, spec := new(app).newFileReader(&processFlags{})
	spec.Process.VisitAll(func(f *pflag.Flag) { top = append(top, f.Name) })
	spec.Section().VisitAll(func(f *pflag.Flag) { section = append(section, f.Name) })
	return top, section
}

// FlagsOfRun returns the names of the flags of redeliver run.
func FlagsOfRun() (names []string) {
	cmd, _, err := rootCommand(&app{printer: printer{Streams: Streams{Env: func(string) string { return "" }}}}).Find([]string{"run"})
	if err != nil {
		panic(err)
	}
	cmd.InitDefaultHelpFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// Abilities returns the rows of the table of verbs that differ by broker.
func Abilities() (rows [][5]string) {
	for _, a := range abilityTable {
		rows = append(rows, [5]string{a.verb, a.kafka, a.kafkaShare, a.rabbitMQ, a.sqs})
	}
	return rows
}
