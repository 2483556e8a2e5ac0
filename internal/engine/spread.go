package engine

import (
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// spread tells failures that are spread over many keys from those of a few messages.
// It keeps, for each cause, the latest failure of each of the MinKeys keys that failed
// last: when that many are there, and the oldest is not older than the window, they are
// spread. What was counted when the oldest failed says how many of all attempts have
// failed since. So a success costs one addition, and memory is bounded. Time is given
// in, as everywhere here, since whatever the caller counts from, who has a lock.
type spread struct {
	minKeys int
	share   float64
	window  time.Duration

	attempts, failures int64
	causes             []cause // the one that was seen last at the end
}

// maxCauses is how many causes are known; the one that has not been seen for longest
// is forgotten for another.
const maxCauses = 16

type cause struct {
	hash uint64
	keys []keyFailure // the latest of each key, oldest first
}

type keyFailure struct {
	key                uint64
	at                 time.Duration
	attempts, failures int64 // this failure included
}

func newSpread(o redeliver.Outage) spread {
	return spread{minKeys: o.MinKeys, share: o.Share, window: o.Window}
}

// reset forgets all failures.
func (s *spread) reset() { s.causes = nil }

// addSuccess counts an attempt that succeeded.
func (s *spread) addSuccess() { s.attempts++ }

// addFailure counts an attempt that failed, and tells whether its cause is an outage.
func (s *spread) addFailure(what, key uint64, now time.Duration) bool {
	s.attempts++
	s.failures++
	c := s.cause(what)
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

// cause returns what is known of a cause, which is the one that was seen last now.
func (s *spread) cause(what uint64) *cause {
	i := slices.IndexFunc(s.causes, func(c cause) bool { return c.hash == what })
	c := cause{hash: what}
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
