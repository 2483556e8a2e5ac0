package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// groupRow is one cause with its dead letters.
type groupRow struct {
	Fingerprint string    `json:"fingerprint,omitempty"` // absent in the row that sums up the causes beyond 1,000
	Count       int64     `json:"count"`
	FirstSeen   time.Time `json:"first_seen,omitzero"`
	LastSeen    time.Time `json:"last_seen,omitzero"`
	Attempts    int64     `json:"attempts"` // of all messages
	Keys        float64   `json:"keys"`     // fraction of the DLQ's keys that are affected, 0 to 1
	Reason      string    `json:"reason,omitempty"`
	ErrorType   string    `json:"error_type,omitempty"`
	Error       string    `json:"error,omitempty"` // of the latest message
	Handler     string    `json:"handler,omitempty"`
	Example     string    `json:"example"` // position of the latest message
}

func groupsCommand(a *app) *cobra.Command {
	var s subjectFlags
	var f filterFlags
	cmd := &cobra.Command{
		Use: "groups [DLQ]", Short: "List the causes: messages grouped by what went wrong", Args: atMostOne("the name of one DLQ"), ValidArgsFunction: a.dlqNames,
		Long: `List the causes in a DLQ, the most frequent first. A cause is a group of messages that failed
in the same way: with the same reason, error type and error text, apart from numbers and ids.
Its fingerprint selects these messages in show, replay, purge and export.`,
		Example: "  redeliver dlq groups orders.billing.dlq --after 24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				a.warnReadEffect(q)
				sum, err := deadletter.Groups(ctx, q, filter)
				if err != nil {
					return err
				}
				out := a.list("FINGERPRINT", "COUNT", "KEYS", "FIRST SEEN", "LAST SEEN", "REASON", "EXAMPLE", "ERROR")
				for _, g := range sum.Groups {
					row := groupRow{
						Fingerprint: g.Fingerprint, Count: g.Count, FirstSeen: g.FirstSeen.UTC(), LastSeen: g.LastSeen.UTC(),
						Attempts: g.Attempts, Keys: g.Keys, Reason: string(g.Reason), ErrorType: g.ErrorType, Error: g.Error, Handler: g.Handler,
						Example: string(g.Example),
					}
					if err := out.add(row, cmp.Or(g.Fingerprint, "(all others)"), g.Count, keys(g.Keys), g.FirstSeen, g.LastSeen,
						state(g.Reason), string(g.Example), longText(errorOf(g.ErrorType, g.Error))); err != nil {
						return err
					}
				}
				err = out.end()
				summary := fmt.Sprintf("causes: %d; %d of %d messages match", len(sum.Groups), sum.Matched, sum.Scanned)
				if sum.Mismatched > 0 {
					summary += fmt.Sprintf(", %d of them belong to another group or origin", sum.Mismatched)
				}
				a.sayf("%s", summary)
				return err
			})
		},
	}
	s.flags(cmd.Flags())
	f.flags(cmd, a.In)
	return cmd
}

// keys formats the share of the keys, which is 0 if no message has a key.
func keys(share float64) string {
	if share == 0 {
		return "-"
	}
	return strconv.Itoa(int(share*100+0.5)) + "%"
}

// errorOf returns the type and the text of an error for one column.
func errorOf(kind, text string) string {
	switch {
	case kind == "":
		return text
	case text == "":
		return kind
	default:
		return kind + ": " + text
	}
}
