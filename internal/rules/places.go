package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
)

// CheckOwnName refuses a name of one of redeliver's topics or queues that is also the origin's, or that of another or of its levels:
// one place would have the messages of two. kind is "topic" or "queue".
func CheckOwnName(ps *check.Problems, kind, field, name, origin string, others ...string) {
	taken := slices.ContainsFunc(others, func(other string) bool { return name == other || strings.HasPrefix(name, other+".") })
	if name == origin || taken {
		ps.Add(field, name, fmt.Sprintf("must be neither the %s itself, nor the name of another %s of redeliver's", kind, kind))
	}
}

// CheckRoom refuses a name to which no level can be appended.
func CheckRoom(ps *check.Problems, field, name string, maxLength int) {
	if len(name) > maxLength {
		ps.Add(field, len(name), fmt.Sprintf("must be at most %d bytes long: redeliver appends the level to it", maxLength))
	}
}

// RefuseName adds the problem that a text is no name of a topic or queue.
func RefuseName(ps *check.Problems, kind, field, name string) {
	ps.Add(field, fmt.Sprintf("%q", name), "must be the name of a "+kind)
}

// CheckLength refuses a name of a topic or queue that is longer than the broker allows, and reports whether it did.
func CheckLength(ps *check.Problems, kind, field, name string, maxLength int) (refused bool) {
	if len(name) > maxLength {
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(name, 40)), fmt.Sprintf("is %d bytes long; a %s has at most %d", len(name), kind, maxLength))
	}
	return len(name) > maxLength
}

// Missing is the value of the problem of [AddMissing].
const Missing = "missing"

// AddMissing adds the problem that a topic or queue of redeliver's does not exist and may not be created. how says how to create it.
func AddMissing(ps *check.Problems, kind, name, how string) {
	ps.Add(kind+" "+name, Missing, "must exist: NoProvisioning is set. "+how)
}
