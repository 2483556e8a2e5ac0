package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// filterText describes the filter of a task in one line, with the errors of its causes at the end. It is empty for no filter.
func filterText(t *deadletter.Task) string {
	f := &t.Filter
	var parts []string
	list := func(name string, values ...string) {
		if n := len(values); n > 3 {
			parts = append(parts, fmt.Sprintf("%s %s and %d more", name, strings.Join(values[:3], ", "), n-3))
		} else if n > 0 && values[0] != "" {
			parts = append(parts, name+" "+strings.Join(values, ", "))
		}
	}
	var positions, reasons []string
	for _, p := range f.Positions {
		positions = append(positions, string(p))
	}
	for _, r := range f.Reasons {
		reasons = append(reasons, string(r))
	}
	list("id", f.IDs...)
	list("position", positions...)
	list("reason", reasons...)
	if f.Key != nil {
		parts = append(parts, fmt.Sprintf("key %q", f.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		parts = append(parts, fmt.Sprintf("header %s=%s", name, f.Headers[name]))
	}
	list("error type", f.ErrorType)
	list("error text", f.ErrorText)
	list("body text", f.BodyText)
	if !f.After.IsZero() {
		parts = append(parts, "after "+f.After.UTC().Format(time.RFC3339))
	}
	if !f.Before.IsZero() {
		parts = append(parts, "before "+f.Before.UTC().Format(time.RFC3339))
	}
	var unknown []string
	for _, fingerprint := range f.Fingerprints {
		if !slices.ContainsFunc(t.Causes, func(c deadletter.Cause) bool { return c.Fingerprint == fingerprint }) {
			unknown = append(unknown, fingerprint)
		}
	}
	list("cause", unknown...)
	for _, c := range t.Causes {
		parts = append(parts, fmt.Sprintf("cause %s (%s)", c.Fingerprint, errorOf(c.ErrorType, c.Error)))
	}
	return strings.Join(parts, "; ")
}
