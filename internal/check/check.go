// Package check collects all problems of a configuration, so that a start is refused with all of them at once.
package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Problems collects the problems of a configuration.
type Problems []redeliver.Problem

// Add adds a problem: field, its value, and the rule that it breaks.
func (ps *Problems) Add(field string, value any, rule string) {
	*ps = append(*ps, redeliver.Problem{Field: field, Value: value, Rule: rule})
}

// Include adds the problems of a [redeliver.ConfigError]. It ignores other errors.
func (ps *Problems) Include(err error) {
	if e, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		*ps = append(*ps, e.Problems...)
	}
}

// Err returns nil if there are no problems, and otherwise one [redeliver.ConfigError] with all of them.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &redeliver.ConfigError{Problems: ps}
}

// CheckPolicy adds all problems of a policy. field and a dot precede the names of its fields.
func (ps *Problems) CheckPolicy(field string, p redeliver.Policy) { ps.Include(p.Validate(field)) }

// CheckOrder adds a problem if the adapter does not support the policy's order. prefix is that of Policy.Validate.
func (ps *Problems) CheckOrder(prefix string, p redeliver.Policy, supported ...redeliver.Order) {
	if !slices.Contains(supported, p.Order) && p.Order <= redeliver.OrderThroughRetries {
		ps.Add(prefix+".Order", p.Order, fmt.Sprintf("must be one of %v here", supported))
	}
}

// CheckCount adds a problem if n is not from minValue to maxValue; a maxValue of 0 means no bound. The problem's text
// says that 0 means the default, so the caller must have replaced a 0 by the default.
func (ps *Problems) CheckCount(field string, n, minValue, maxValue int) {
	checkRange(ps, field, n, minValue, maxValue)
}

// CheckDuration is CheckCount for a duration.
func (ps *Problems) CheckDuration(field string, d, minValue, maxValue time.Duration) {
	checkRange(ps, field, d, minValue, maxValue)
}

func checkRange[T int | time.Duration](ps *Problems, field string, value, minValue, maxValue T) {
	if rule := limits.RangeRule(value, minValue, maxValue); rule != "" {
		ps.Add(field, value, rule)
	}
}
