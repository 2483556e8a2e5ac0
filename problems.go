package redeliver

import (
	"fmt"
	"strings"
	"time"
)

// Problem is one problem of a configuration.
type Problem struct {
	Field string // the field, topic setting or name that is wrong
	Value any    // its value
	Rule  string // the rule for it, or what to do
}

func (p Problem) String() string { return fmt.Sprintf("%s is %v: %s", p.Field, p.Value, p.Rule) }

// ConfigError lists all problems of a configuration at once.
type ConfigError struct{ Problems []Problem }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "configuration refused: " + strings.Join(lines, "; ")
}
func (e *ConfigError) Is(target error) bool { return target == ErrConfig }

// Problems collects the problems of a configuration.
type Problems []Problem

// Add adds a problem: field, its value, and the rule that it breaks.
func (ps *Problems) Add(field string, value any, rule string) {
	*ps = append(*ps, Problem{field, value, rule})
}

// Err returns nil if there are no problems, and otherwise one [ConfigError] with all of them.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &ConfigError{ps}
}

// Include adds the problems of a [ConfigError]. It ignores other errors.
func (ps *Problems) Include(err error) {
	if e, ok := as[*ConfigError](err); ok {
		*ps = append(*ps, e.Problems...)
	}
}

// CheckPolicy adds all problems of a policy. field and a dot precede the names of its fields.
func (ps *Problems) CheckPolicy(field string, p Policy) { p.check(ps, field) }

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
	switch {
	case value >= minValue && (maxValue == 0 || value <= maxValue):
	case maxValue != 0:
		ps.Add(field, value, fmt.Sprintf("must be from %v to %v, or 0 for the default", minValue, maxValue))
	case minValue > 0:
		ps.Add(field, value, fmt.Sprintf("must be at least %v, or 0 for the default", minValue))
	default:
		ps.Add(field, value, "must not be negative; 0 for the default")
	}
}
