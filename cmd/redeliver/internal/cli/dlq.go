package cli

import (
	"github.com/spf13/cobra"
)

func dlqCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "Inspect, replay and edit dead-letter queues",
		Long: `Inspect, replay and edit dead-letter queues (DLQs).

Name a DLQ as "dlq list" prints it, or by --topic and --group. A DLQ that another framework
fills (Spring Kafka, Watermill, Kafka Connect) needs its name, --topic and --group.

list, groups, show, export, check and tasks only read. replay, edit, purge and
import ask for confirmation before they change anything, unless --yes is given.`,
	}
	cmd.AddCommand(listCommand(a), groupsCommand(a), showCommand(a), replayCommand(a), editCommand(a), purgeCommand(a), exportCommand(a), importCommand(a), checkCommand(a),
		tasksCommand(a), pauseCommand(a), resumeCommand(a), cancelCommand(a))
	refuseUnknownVerbs(cmd)
	return cmd
}
