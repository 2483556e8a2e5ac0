package cli

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/simulate"
)

// simulateFlags are the flags of a scenario.
type simulateFlags struct {
	policy  policyFlags
	s       simulate.Scenario
	outages []string
	svg     string
}

func simulateCommand(a *app) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Simulate a policy without a broker",
		Long: `Simulate what a policy does to messages that arrive at a rate while a dependency fails: how
long they take to succeed, how much load the retries add, how many messages wait on each
level, how many end in the DLQ, and how many operations that is on each broker.

It uses virtual time and makes the same decisions as a subscriber. It leaves out the latency
of the broker, partitions, the order of keys, and crashes.`,
		Example: `  redeliver simulate --rate 50 --for 1h --outage 10m-15m
  redeliver simulate --backoff rocketmq --rate 11.6 --for 24h --errors 0.01 --poison 0.0001 --outage 6h-8h:0.5 --svg day.svg`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.scenario(cmd)
			if err != nil {
				return err
			}
			r, err := simulate.Run(cmd.Context(), s)
			if errors.Is(err, redeliver.ErrConfig) {
				return usagef("%w", err)
			}
			if err != nil {
				return err
			}
			if f.svg != "" {
				text, err := drawSVG(r)
				if err == nil {
					err = os.WriteFile(f.svg, text, 0o644)
				}
				if err != nil {
					return fmt.Errorf("--svg: %w", err)
				}
			}
			return a.printOne(r, func(c *details) { drawResult(c, r) })
		},
	}
	flags := cmd.Flags()
	f.policy.flags(cmd)
	flags.DurationVar(&f.s.Duration, "for", simulate.DefaultDuration, "Let messages arrive for this `duration`")
	flags.Float64Var(&f.s.Rate, "rate", simulate.DefaultRate, "Let this `number` of messages arrive per second")
	flags.Float64Var(&f.s.ErrorShare, "errors", 0, "Fail this `share` of all attempts at random, from 0 to 1")
	flags.Float64Var(&f.s.PoisonShare, "poison", 0, "Let this `share` of messages never succeed, from 0 to 1")
	flags.StringArrayVar(&f.outages, "outage", nil, "Fail attempts in this period, `FROM-TO[:SHARE]`, as in 10m-15m or 1h-2h:0.5. Repeatable")
	flags.DurationVar(&f.s.HandlerTime, "handler", 0, "Let an attempt take this `duration`")
	flags.IntVar(&f.s.Concurrency, "concurrency", 0, "Run at most this `number` of attempts at once, retries included (default no limit)")
	flags.IntVar(&f.s.Bars, "bars", simulate.DefaultBars, "Divide the time into this `number` of parts, in charts and series")
	flags.Uint64Var(&f.s.Seed, "seed", 0, "Use this `number` as the seed of the random choices. The same seed gives the same result")
	flags.StringVar(&f.svg, "svg", "", "Also draw the load and the waiting messages into this SVG `file`")
	return cmd
}

// scenario returns the scenario of the flags. Its error has all problems.
func (f *simulateFlags) scenario(cmd *cobra.Command) (simulate.Scenario, error) {
	s := f.s
	policy, err := f.policy.policy(cmd.Flags())
	errs := []error{err}
	s.Policy = policy
	for _, text := range f.outages {
		o, err := parseOutage(text)
		if err != nil {
			errs = append(errs, usagef("--outage is %q: %w", text, err))
		}
		s.Outages = append(s.Outages, o)
	}
	for _, given := range []struct {
		name string
		none bool // the user gave 0, which in the library means the default
	}{{"for", s.Duration == 0}, {"rate", s.Rate == 0}, {"bars", s.Bars == 0}} {
		if given.none {
			errs = append(errs, usagef("--%s is 0: must be more than 0", given.name))
		}
	}
	return s, errors.Join(errs...)
}

var errOutage = errors.New("must be FROM-TO or FROM-TO:SHARE, as 10m-15m or 1h-2h:0.5")

func parseOutage(text string) (o simulate.Outage, err error) {
	times, share, part := strings.Cut(text, ":")
	from, to, ok := strings.Cut(times, "-")
	if !ok {
		return o, errOutage
	}
	if o.From, err = time.ParseDuration(from); err != nil && from != "0" {
		return o, errOutage
	}
	if o.To, err = time.ParseDuration(to); err != nil {
		return o, errOutage
	}
	if part {
		if o.Share, err = strconv.ParseFloat(share, 64); err != nil || o.Share == 0 {
			return o, errOutage
		}
	}
	return o, nil
}

// drawResult prints a result as a table.
func drawResult(c *details, r *simulate.Result) {
	of := func(n, all int) string {
		if all == 0 {
			return strconv.Itoa(n)
		}
		return fmt.Sprintf("%d (%s %%)", n, strconv.FormatFloat(math.Round(1e4*float64(n)/float64(all))/1e2, 'f', -1, 64))
	}
	c.line("messages", r.Messages)
	c.line("succeeded", of(r.Succeeded, r.Messages))
	c.line("  in the first attempt", of(r.FirstAttempt, r.Messages))
	c.line("  after a failure", quantiles(r.Succeeded-r.FirstAttempt, r.Recovered))
	c.line("in the DLQ", of(r.Dead, r.Messages))
	for _, reason := range redeliver.Reasons() {
		if n := r.DeadBy[reason]; n > 0 {
			c.line("  "+string(reason), of(n, r.Messages))
		}
	}
	c.line("attempts", r.Attempts)
	c.line("  retries", of(r.Retries, r.Attempts))
	c.line("  most in one second", r.PeakLoad)
	c.line("done after", r.Done)

	levels := newGrid(false, []string{"LEVEL", "MESSAGES", "WAITING AT MOST"})
	for _, l := range r.Levels {
		if l.Passed > 0 {
			levels.add([]any{l.Name, l.Passed, int64(math.Ceil(l.Peak))})
		}
	}
	c.table("levels", levels)
	ops := newGrid(false, []string{"BROKER", "WRITES", "READS", "ACKS", "COST"})
	for _, o := range r.Operations {
		cost := "-"
		if o.Cost > 0 {
			cost = fmt.Sprintf("%.2f USD", o.Cost)
		}
		ops.add([]any{o.Broker, o.Writes, o.Reads, o.Acks, cost})
	}
	c.table("operations, without the writes of arriving messages", ops)
	for _, chart := range charts(r) {
		c.text(chart.title, chart.plot())
	}
}

func quantiles(n int, q simulate.Quantiles) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, half within %s, 90 %% %s, 99 %% %s, all %s", n, q.P50, q.P90, q.P99, q.Max)
}

// total returns the number of messages that wait on all levels.
func total(waiting []float64) (sum float64) {
	for _, w := range waiting {
		sum += w
	}
	return sum
}

// shown returns the bars up to the last one that is not empty.
func shown(r *simulate.Result) []simulate.Bar {
	last := len(r.Series)
	for last > 1 {
		b := &r.Series[last-1]
		if b.Arrived+b.Attempts+b.Dead > 0 || total(b.Waiting) > 0 {
			break
		}
		last--
	}
	return slices.Clone(r.Series[:last])
}
