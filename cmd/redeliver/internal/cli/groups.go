package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/deadletter"
)

// groupRow is the dead letters of one cause.
type groupRow struct {
	Fingerprint string    `json:"fingerprint,omitempty"` // absent of the group of all that are too many
	Count       int64     `json:"count"`
	Quarantined int64     `json:"quarantined"`
	FirstSeen   time.Time `json:"first_seen,omitzero"`
	LastSeen    time.Time `json:"last_seen,omitzero"`
	Attempts    int64     `json:"attempts"` // in all
	Keys        float64   `json:"keys"`     // the share of the DLQ's keys that it has hit, 0 to 1
	Reason      string    `json:"reason,omitempty"`
	ErrorType   string    `json:"error_type,omitempty"`
	Error       string    `json:"error,omitempty"` // of its latest message
	Handler     string    `json:"handler,omitempty"`
	Example     string    `json:"example"` // where its latest message lies
}

func (a *app) groups() *cobra.Command {
	var s subjectFlags
	var f filterFlags
	cmd := &cobra.Command{
		Use: "groups [DLQ]", Short: "Group the messages of a DLQ by what went wrong", Args: atMostDLQ, ValidArgsFunction: a.dlqNames,
		Example: "  redeliver dlq groups orders.billing.dlq --after 24h",
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := f.filter(time.Now())
			if err != nil {
				return err
			}
			return a.onDLQ(cmd, &s, args, func(ctx context.Context, q deadletter.Queue) error {
				a.looking(q)
				sum, err := deadletter.Groups(ctx, q, filter)
				if err != nil {
					return err
				}
				out := a.list("FINGERPRINT", "COUNT", "KEYS", "FIRST SEEN", "LAST SEEN", "REASON", "EXAMPLE", "ERROR")
				for _, g := range sum.Groups {
					row := groupRow{
						Fingerprint: g.Fingerprint, Count: g.Count, Quarantined: g.Quarantined, FirstSeen: g.FirstSeen.UTC(), LastSeen: g.LastSeen.UTC(),
						Attempts: g.Attempts, Keys: g.Keys, Reason: string(g.Reason), ErrorType: g.ErrorType, Error: g.Error, Handler: g.Handler,
						Example: string(g.Example),
					}
					if err := out.add(row, cmp.Or(g.Fingerprint, "(the rest)"), g.Count, percent(g.Keys), g.FirstSeen, g.LastSeen,
						string(g.Reason), string(g.Example), short(errorOf(g.ErrorType, g.Error), 100)); err != nil {
						return err
					}
				}
				a.sayf("%d messages looked at, %d taken, %d of these of another group or origin; causes: %d", sum.Scanned, sum.Matched, sum.Mismatched, len(sum.Groups))
				return out.end()
			})
		},
	}
	s.flags(cmd)
	f.flags(cmd.Flags())
	return cmd
}

func percent(share float64) string { return strconv.Itoa(int(share*100+0.5)) + "%" }

// errorOf is an error in one column.
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
