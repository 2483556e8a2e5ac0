package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/backofftext"
)

// policyFlags are a policy on the command line, as examples/worker has it.
type policyFlags struct {
	retries, immediate, maxLevels int
	backoff                       string
	levels                        []time.Duration
	timeout, maxAge               time.Duration
	order                         string
}

func (p *policyFlags) flags(flags *pflag.FlagSet) {
	flags.IntVar(&p.retries, "retries", redeliver.DefaultMaxRetries, "retries after the first attempt, 0 for none; with --backoff rocketmq the default is its own 16")
	flags.IntVar(&p.immediate, "immediate", 0, "how many of them are made at once")
	flags.StringVar(&p.backoff, "backoff", "", "the `waits` before the retries: exponential:BASE,MAX, fixed:D, steps:D,D,..., rocketmq (default exponential:1s,60s)")
	flags.DurationSliceVar(&p.levels, "levels", nil, "the rungs of the ladder, ascending (default made of the waits)")
	flags.IntVar(&p.maxLevels, "max-levels", redeliver.DefaultMaxLevels, "the most rungs that are made, where --levels is not given")
	flags.DurationVar(&p.timeout, "timeout", redeliver.DefaultTimeout, "the longest that one attempt may take")
	flags.DurationVar(&p.maxAge, "max-age", 0, "the longest life of a message, 0 for no bound")
	flags.StringVar(&p.order, "order", "", "which messages wait for which: KeyOrder (default), Unordered, Blocking, PerKey")
}

// policy reads them. All that is wrong with them is in one error.
func (p *policyFlags) policy(given *pflag.FlagSet) (redeliver.Policy, error) {
	policy := redeliver.Policy{
		Immediate: p.immediate, Timeout: p.timeout, MaxAge: p.maxAge, Levels: p.levels, MaxLevels: p.maxLevels,
	}
	var errs []error
	switch {
	case p.retries < 0:
		errs = append(errs, usagef("--retries is %d: must be 0 or more", p.retries))
	case p.retries == 0:
		policy.MaxRetries = redeliver.NoRetries
	case given.Changed("retries"):
		policy.MaxRetries = p.retries // else what the backoff was drawn up for
	}
	if p.timeout <= 0 {
		errs = append(errs, usagef("--timeout is %s: must be longer than nothing", p.timeout))
	}
	var err error
	if p.backoff != "" { // else the policy's default
		if policy.Backoff, err = backofftext.Parse(p.backoff); err != nil {
			errs = append(errs, usagef("--backoff %w", err))
		}
	}
	if policy.Order, err = parseOrder(p.order); err != nil {
		errs = append(errs, usagef("--order %w", err))
	}
	return policy, errors.Join(errs...)
}

func parseOrder(text string) (redeliver.Order, error) {
	orders := []redeliver.Order{redeliver.KeyOrder, redeliver.Unordered, redeliver.Blocking, redeliver.PerKey}
	for _, o := range orders {
		if text == "" || strings.EqualFold(text, o.String()) {
			return o, nil
		}
	}
	return 0, fmt.Errorf("is %q: must be one of %v", text, orders)
}
