package redeliver

import (
	"fmt"
	"strings"
	"time"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	Field string // the field, topic setting or name that is wrong
	Value any    // what it says
	Rule  string // what it must say, or what to do
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

// Problems collects what is wrong with a configuration.
type Problems []Problem

// Add notes a problem: field, its value, and the rule it breaks.
func (ps *Problems) Add(field string, value any, rule string) {
	*ps = append(*ps, Problem{field, value, rule})
}

// Err returns nil when there are no problems, else one [ConfigError] with all.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &ConfigError{ps}
}

// Policy notes everything that is wrong with a policy, its fields named below field.
func (ps *Problems) Policy(field string, p Policy) { p.check(ps, field) }

// Count notes a number that is not from least to most; a most of 0 is no bound.
// That the zero value means the default is said, and not looked at: n is checked
// when it has its default.
func (ps *Problems) Count(field string, n, least, most int) { checkRange(ps, field, n, least, most) }

// Duration is Count for a duration.
func (ps *Problems) Duration(field string, d, least, most time.Duration) {
	checkRange(ps, field, d, least, most)
}

func checkRange[T int | time.Duration](ps *Problems, field string, value, least, most T) {
	switch {
	case value >= least && (most == 0 || value <= most):
	case most != 0:
		ps.Add(field, value, fmt.Sprintf("must be from %v to %v, or 0 for the default", least, most))
	case least > 0:
		ps.Add(field, value, fmt.Sprintf("must be at least %v, or 0 for the default", least))
	default:
		ps.Add(field, value, "must not be negative; 0 for the default")
	}
}
