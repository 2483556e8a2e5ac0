package doctor

import "time"

// OldLevel is a level of an older policy. redeliver reads it until it is empty. It stays until an adapter's RemoveOldLevels
// removes it.
type OldLevel struct {
	Place    string // the topic or queue
	Level    time.Duration
	Messages int64 // that wait on it; -1 if unknown
	// Keep says why the level must stay: messages wait on it, a member may run a policy that has it, or nobody knows.
	// It is empty for a level that is drained.
	Keep string
	// Removed reports whether the level was removed.
	Removed bool
}
