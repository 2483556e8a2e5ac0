package doctor

import "time"

// OldLevel is a level of an older policy. redeliver reads it until it is empty. An adapter's RemoveOldLevels removes it.
type OldLevel struct {
	Place    string // the topic or queue
	Level    time.Duration
	Messages int64 // the number of messages that wait on it; -1 if unknown
	// KeepReason is why the level must stay: messages wait on it, or a member of the group runs, or may run, a policy
	// with this level. It is empty for a level that can be removed.
	KeepReason string
	// Removed reports whether the level was removed.
	Removed bool
}
