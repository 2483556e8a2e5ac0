package doctor

import "time"

// OldLevel is a level of an older policy. redeliver reads it until it is empty. It stays until an adapter's RemoveOldLevels
// removes it.
type OldLevel struct {
	Place    string // the topic or queue
	Level    time.Duration
	Messages int64 // that wait on it; -1 if unknown
	// KeepReason is the reason why the level must stay: messages wait on it, a member may run a policy that has it, or that
	// is unknown. It is empty for a drained level.
	KeepReason string
	// Removed reports whether the level was removed.
	Removed bool
}
