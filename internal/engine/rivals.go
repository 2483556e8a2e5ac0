package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

const (
	// apart is how much later than the first message of another policy was met here one
	// must have failed, by the clock of who wrote that, to have been written beside this
	// process: what an older version wrote in its last moments is no finding, nor is a
	// clock that is ahead.
	apart = time.Minute
	// again is how often the same other policy is told of, for as long as it is seen.
	again = time.Hour
	// rivalsMost bounds the memory of what was told.
	rivalsMost = 100
)

// ErrPolicies is [delayqueue.ErrPolicies].
var ErrPolicies = delayqueue.ErrPolicies

// rivals are the other policies under which messages of a subscription are written.
type rivals struct {
	mu    sync.Mutex
	since time.Time            // the first message of another policy was met
	told  map[string]time.Time // by fingerprint
}

// Met looks at a message that has come back: whether somebody else writes here under
// another policy, now. An adapter calls it with the state of every message that
// comes from where redeliver writes. It may be called by many goroutines at once.
func (s *Subscription) Met(st *redeliver.State) {
	if s.Sink == nil || st.Policy == "" || st.Policy == s.Fingerprint() {
		return
	}
	r := &s.rivals
	r.mu.Lock()
	if r.since.IsZero() {
		r.since = time.Now()
	}
	beside := st.LastFailed.After(r.since.Add(apart))
	r.mu.Unlock()
	if beside {
		s.Differs(st.Policy, fmt.Sprintf("a message that failed at %s was written by it", st.LastFailed.UTC().Format(time.RFC3339)))
	}
}

// Differs tells that somebody runs another policy, the one with this fingerprint: once,
// and again after an hour for as long as it is seen. how says where it was seen.
func (s *Subscription) Differs(fingerprint, how string) {
	if s.Sink == nil || !s.rivals.tells(fingerprint, time.Now()) {
		return
	}
	s.Tell(redeliver.SubscriptionChanged{
		Origin: s.Origin, Group: s.Group, Change: redeliver.ChangePolicyDiffers,
		Detail: fmt.Sprintf("this instance runs %s, another one %s: %s", s.Fingerprint(), fingerprint, how), Err: ErrPolicies,
	})
}

// Agrees tells that all instances run this policy, where others were told of before. An
// adapter calls it whose broker says who runs what.
func (s *Subscription) Agrees() {
	r := &s.rivals
	r.mu.Lock()
	n := len(r.told)
	r.told = nil
	if n > 0 {
		r.since = time.Now() // what others have written until now says nothing of who writes
	}
	r.mu.Unlock()
	if n > 0 {
		s.Tell(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: redeliver.ChangePoliciesAgree, Detail: "all instances run " + s.Fingerprint()})
	}
}

func (r *rivals) tells(fingerprint string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.told[fingerprint]; ok && now.Sub(at) < again || !ok && len(r.told) >= rivalsMost {
		return false
	}
	if r.told == nil {
		r.told = make(map[string]time.Time)
	}
	r.told[fingerprint] = now
	return true
}
