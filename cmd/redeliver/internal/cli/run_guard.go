package cli

import (
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// guardFlags are the parts of a policy that do not concern its waits.
type guardFlags struct {
	outage bool
	flood  int
}

func (g *guardFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&g.outage, "outage", false, "When nearly all messages fail in the same way, pause until that ends instead of dead-lettering them")
	flags.IntVar(&g.flood, "dead-letter-rate", 0, "Pause when more than this `number` of messages go to the DLQ within a minute (default no limit)")
}

// read puts the flags into a policy.
func (g *guardFlags) read(p *redeliver.Policy) {
	if g.outage {
		p.Outage = redeliver.DefaultOutage()
	}
	p.DeadLetterRate.Most = g.flood
}
