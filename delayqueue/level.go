package delayqueue

import (
	"strings"
	"time"
)

// LevelName returns the canonical name of a level, as in the name of its delay topic: 90 s is
// "1m30s", an hour "1h".
func LevelName(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseLevel returns the level with a name. Only canonical names of positive levels are valid: "90s" and "0s" are not.
func ParseLevel(name string) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(name)
	return d, err == nil && d > 0 && LevelName(d) == name
}
