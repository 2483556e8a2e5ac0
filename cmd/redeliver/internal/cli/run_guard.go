package cli

import (
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
)

// guardFlags are the flags of a policy that do not concern its delays.
type guardFlags struct {
	outage bool
	flood  int
	rate   redeliver.Rate
}

func (g *guardFlags) flags(flags *pflag.FlagSet) {
	flags.BoolVar(&g.outage, "outage", true, "When nearly all messages fail in the same way, or the handler is not there, pause until that ends instead of dead-lettering them")
	flags.Float64Var(&g.rate.PerSecond, "rate-limit", 0, "Begin at most this `number` of attempts per second, over all messages of a topic (default no limit)")
	flags.IntVar(&g.rate.Burst, "burst", 0, "With --rate-limit: begin at most this `number` of attempts at once after a pause (default a tenth of --rate-limit)")
	flags.IntVar(&g.flood, "dead-letter-rate", 0, "Pause when more than this `number` of messages go to the DLQ within a minute (default no limit)")
}

// setFields sets the fields of a policy from the flags.
func (g *guardFlags) setFields(p *redeliver.Policy) {
	p.Outage.Off = !g.outage
	p.DeadLetterRate.Max, p.Rate = g.flood, g.rate
}
