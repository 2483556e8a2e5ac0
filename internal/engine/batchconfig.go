package engine

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

// CheckBatchSize adds a problem to ps if a subscription with maxInFlight can never fill a batch. Size and maxInFlight have their
// defaults.
func CheckBatchSize(ps *check.Problems, c redeliver.BatchConfig, maxInFlight int) {
	if maxInFlight > 0 && c.Size > maxInFlight {
		ps.Add("BatchConfig.Size", c.Size, fmt.Sprintf(
			"must not be above the subscription's MaxInFlight, %d, or no batch is ever full; raise MaxInFlight or lower Size", maxInFlight))
	}
}

// CheckBatchWait adds a problem to ps if the broker takes the messages of a subscription back before a partial batch of them has
// run. c has its defaults.
func CheckBatchWait(ps *check.Problems, c redeliver.BatchConfig, all ...*Subscription) {
	for _, s := range all {
		times := time.Duration(1 + s.Policy.Immediate) // an immediate retry waits for a batch again
		run := max(0, s.Policy.Timeout)
		if s.MaxHeld > 0 && c.Timeout > 0 && c.Timeout <= redeliver.MaxWait && c.Timeout >= s.MaxHeld/times-run {
			ps.Add("BatchConfig.Timeout", c.Timeout, fmt.Sprintf(
				"must be so low that (1 + Immediate) x (it + the policy's Timeout), %d x (%s + %s), is below %s for %s: %s. Otherwise a partial batch never runs. Lower one of them",
				times, c.Timeout, run, s.MaxHeld, s.Origin, s.MaxHeldWhy))
			return
		}
	}
}
