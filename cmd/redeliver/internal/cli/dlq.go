package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) dlq() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Look into dead-letter queues, and change them",
		Long: `dlq works inside dead-letter queues. A DLQ is named by its name, as dlq list has
it, or by --topic and --group; one that somebody else fills (Spring Kafka, Watermill,
Kafka Connect) by all three.

list, groups, show, export, check and tasks only look. replay, edit, purge, import,
pause, resume and cancel change something; those that begin work ask first, or want --yes.`,
	}
	cmd.AddCommand(a.lists(), a.groups(), a.show(), a.replay(), a.edit(), a.quarantine(), a.purge(), a.export(), a.imports(), a.check(),
		a.tasks(), a.pause(), a.resume(), a.cancel())
	verbs(cmd)
	return cmd
}
