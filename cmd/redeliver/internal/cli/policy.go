package cli

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/backofftext"
)

// policyFlags are the flags of a policy.
type policyFlags struct {
	retries, immediate, maxLevels int
	backoff                       string
	levels                        []time.Duration
	timeout, maxAge               time.Duration
	order                         string
}

func (p *policyFlags) flags(cmd *cobra.Command) {
	grouped(cmd.Flags(), groupPolicy, p.define)
	completePolicy(cmd)
}

// completePolicy sets the shell completion of the flags of a policy.
func completePolicy(cmd *cobra.Command) {
	oneOf(cmd, "order", orderNames...)
	oneOf(cmd, "backoff", "exponential:1s,60s", "exponential:1s,60s,factor=3,jitter=0.2", "fixed:10s", "steps:10s,1m,1h", "rocketmq")
}

func (p *policyFlags) define(flags *pflag.FlagSet) {
	flags.IntVar(&p.retries, "retries", redeliver.DefaultMaxRetries, "Retry a message at most this `number` of times, 0 for never. The default with --backoff rocketmq is 16")
	flags.StringVar(&p.backoff, "backoff", "", "The `waits` before the retries: "+backofftext.Usage+" (default exponential:1s,60s)")
	flags.IntVar(&p.immediate, "immediate", 0, "Run this `number` of the retries without a wait")
	flags.DurationSliceVar(&p.levels, "levels", nil, "The `durations` of the delay topics or queues, ascending: 10s,1m,1h (default derived from --backoff)")
	flags.Lookup("levels").DefValue = "" // pflag would print []
	flags.IntVar(&p.maxLevels, "max-levels", redeliver.DefaultMaxLevels, "Derive at most this `number` of levels when --levels is not given")
	flags.DurationVar(&p.timeout, "timeout", redeliver.DefaultTimeout, "Fail an attempt that takes longer than this `duration`")
	flags.DurationVar(&p.maxAge, "max-age", 0, "Dead-letter a message instead of running it when it is older than this `duration` (default no limit)")
	flags.StringVar(&p.order, "order", "", "The `order` of messages with the same key: first-attempts, none, blocking or through-retries (default first-attempts)")
}

// policy returns the policy of the flags. Its error has all problems.
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
		policy.MaxRetries = p.retries // otherwise the backoff decides
	}
	if p.timeout <= 0 {
		errs = append(errs, usagef("--timeout is %s: must be more than 0", p.timeout))
		policy.Timeout = 0
	}
	var err error
	if p.backoff != "" { // otherwise the policy's default holds
		if policy.Backoff, err = backofftext.Parse(p.backoff); err != nil {
			errs = append(errs, usagef("--backoff %w", err))
		}
	}
	if policy.Order, err = parseOrder(p.order); err != nil {
		errs = append(errs, err)
	}
	return policy, errors.Join(errs...)
}

// orderNames are the values of --order, indexed by redeliver.Order. formerOrderNames are accepted, too.
var (
	orderNames       = []string{"first-attempts", "none", "blocking", "through-retries"}
	formerOrderNames = []string{"KeyOrder", "Unordered", "Blocking", "PerKey"}
)

func parseOrder(text string) (redeliver.Order, error) {
	if text == "" {
		return redeliver.OrderFirstAttempts, nil
	}
	for _, names := range [][]string{orderNames, formerOrderNames} {
		if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(text, name) }); i >= 0 {
			return redeliver.Order(i), nil
		}
	}
	return 0, mustBeOneOf("order", text, orderNames)
}

// given reports whether any flag of the policy was given.
func (p *policyFlags) given(flags *pflag.FlagSet) (given bool) {
	flags.Visit(func(f *pflag.Flag) { given = given || slices.Contains(f.Annotations[groupKey], groupPolicy) })
	return given
}
