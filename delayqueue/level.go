package delayqueue

import (
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// LevelName returns the canonical name of a level, as in the name of its delay topic: 90 s is
// "1m30s", an hour "1h".
func LevelName(d time.Duration) string { return limits.ShortDuration(d) }

// ParseLevel returns the level with a name. Only canonical names of positive levels are valid: "90s" and "0s" are not.
func ParseLevel(name string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(name)
	return d, err == nil && d > 0 && LevelName(d) == name
}
