package cli

import (
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// guardFlags are what a policy asks for beside its schedule: they are for who runs
// messages, and plan no waits.
type guardFlags struct {
	outage bool
	poison int
	budget float64
	flood  int
}

func (g *guardFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&g.outage, "outage", false, "wait for the end of an outage, when nearly all messages fail alike, and dead-letter nobody for it")
	flags.IntVar(&g.poison, "poison", 0, "dead-letter a message that alone fails after so many `attempts` (default when its retries are over)")
	flags.Float64Var(&g.budget, "retry-budget", 0, "stretch the waits when there are more retries than this `share` of first attempts, 0.2 for instance (default no bound)")
	flags.IntVar(&g.flood, "dead-letter-rate", 0, "pause when more than so `many` messages go to the DLQ within a minute (default no bound)")
}

// read puts them into a policy, which is checked as a whole.
func (g *guardFlags) read(p *redeliver.Policy) {
	if g.outage {
		p.Outage = redeliver.DefaultOutage()
	}
	p.Poison.Attempts, p.RetryBudget.Share, p.DeadLetterRate.Most = g.poison, g.budget, g.flood
}
