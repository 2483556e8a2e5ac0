package cli

import (
	"strings"

	"github.com/spf13/cobra"
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

// Abilities returns the rows of the table of verbs that differ by broker.
func Abilities() (rows [][5]string) {
	for _, a := range abilityTable {
		rows = append(rows, [5]string{a.verb, a.kafka, a.kafkaShare, a.rabbitMQ, a.sqs})
	}
	return rows
}
