package delayqueue

import "time"

// OldLevel is a level that is there and that the policy does not have: an older one has
// left it. It is read until it is empty, and stays until somebody has an adapter remove it.
type OldLevel struct {
	Place    string // the topic or queue
	Level    time.Duration
	Messages int64 // that wait on it; -1 where that is not known
	// Keep says why it must stay: messages wait on it, a member may run a policy that
	// has it, or nobody knows. Empty of a level that is drained.
	Keep string
	// Removed tells whether it was removed.
	Removed bool
}
