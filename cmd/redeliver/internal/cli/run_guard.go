package cli

import (
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// guardFlags are what a policy asks for beside its schedule: they are for who runs
// messages, and plan no waits.
type guardFlags struct {
	outage bool
	flood  int
}

func (g *guardFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&g.outage, "outage", false, "wait for the end of an outage, when nearly all messages fail alike, and dead-letter nobody for it")
	flags.IntVar(&g.flood, "dead-letter-rate", 0, "pause when more than so `many` messages go to the DLQ within a minute (default no bound)")
}

// read puts them into a policy, which is checked as a whole.
func (g *guardFlags) read(p *redeliver.Policy) {
	if g.outage {
		p.Outage = redeliver.DefaultOutage()
	}
	p.DeadLetterRate.Most = g.flood
}
