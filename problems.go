package redeliver

import (
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
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

// problems collects the problems of a configuration. Other packages have that of internal/check.
type problems []Problem

// Add adds a problem: field, its value, and the rule that it breaks.
func (ps *problems) Add(field string, value any, rule string) {
	*ps = append(*ps, Problem{field, value, rule})
}

// Err returns nil if there are no problems, and otherwise one [ConfigError] with all of them.
func (ps problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return &ConfigError{ps}
}

// checkRange adds a problem if value is not from minValue to maxValue; a maxValue of 0 means no bound.
func checkRange[T int | time.Duration](ps *problems, field string, value, minValue, maxValue T) {
	if rule := limits.RangeRule(value, minValue, maxValue); rule != "" {
		ps.Add(field, value, rule)
	}
}
