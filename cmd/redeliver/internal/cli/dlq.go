package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) dlq() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Inspect, replay and edit dead-letter queues",
		Long: `Inspect, replay and edit dead-letter queues (DLQs).

Name a DLQ as "dlq list" prints it, or by --topic and --group. A DLQ that another framework
fills (Spring Kafka, Watermill, Kafka Connect) needs its name, --topic and --group.

list, groups, show, export, check and tasks only read. replay, edit, quarantine, purge and
import ask for confirmation before they change anything, unless --yes is given.`,
	}
	cmd.AddCommand(a.lists(), a.groups(), a.show(), a.replay(), a.edit(), a.quarantine(), a.purge(), a.export(), a.imports(), a.check(),
		a.tasks(), a.pause(), a.resume(), a.cancel())
	verbs(cmd)
	return cmd
}
