package guard

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// spread finds out whether failures with one cause are spread over many keys. For each cause it keeps the minKeys keys that
// failed last, with the latest failure of each. The cause is spread when there are minKeys such failures, none older than the
// window, and when the configured share of all attempts has failed since the oldest of them. A success costs one addition, and
// memory is bounded.
type spread struct {
	minKeys int
	share   float64
	window  time.Duration

	attempts, failures int64
	causes             []cause // the one that was seen latest is the last
}

// maxCauses bounds the causes that are kept. A new cause replaces the one that was seen least recently.
const maxCauses = 16

type cause struct {
	hash uint64
	keys []keyFailure // the latest of each key, oldest first
}

// keyFailure is the latest failure of a key. attempts and failures are those of spread after it.
type keyFailure struct {
	key                uint64
	at                 time.Duration
	attempts, failures int64
}

func newSpread(o redeliver.Outage) spread {
	return spread{minKeys: o.MinKeys, share: o.Share, window: o.Window}
}

// reset forgets all failures.
func (s *spread) reset() { s.causes = nil }

// addSuccess counts an attempt that succeeded.
func (s *spread) addSuccess() { s.attempts++ }

// addFailure counts an attempt that failed. It reports whether its cause is spread.
func (s *spread) addFailure(hash, key uint64, now time.Duration) bool {
	s.attempts++
	s.failures++
	c := s.moveToEnd(hash)
	if i := slices.IndexFunc(c.keys, func(f keyFailure) bool { return f.key == key }); i >= 0 {
		c.keys = slices.Delete(c.keys, i, i+1)
	} else if len(c.keys) == s.minKeys {
		c.keys = slices.Delete(c.keys, 0, 1)
	}
	c.keys = append(c.keys, keyFailure{key, now, s.attempts, s.failures})
	oldest := c.keys[0]
	if len(c.keys) < s.minKeys || now-oldest.at > s.window {
		return false
	}
	attempts, failures := s.attempts-oldest.attempts+1, s.failures-oldest.failures+1
	return float64(failures) >= s.share*float64(attempts)
}

// moveToEnd makes a cause, which may be new, the last of causes, and returns it.
func (s *spread) moveToEnd(hash uint64) *cause {
	i := slices.IndexFunc(s.causes, func(c cause) bool { return c.hash == hash })
	c := cause{hash: hash}
	switch {
	case i >= 0:
		c = s.causes[i]
		s.causes = slices.Delete(s.causes, i, i+1)
	case len(s.causes) == maxCauses:
		s.causes = slices.Delete(s.causes, 0, 1)
	}
	s.causes = append(s.causes, c)
	return &s.causes[len(s.causes)-1]
}
