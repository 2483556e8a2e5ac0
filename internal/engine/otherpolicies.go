package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

const (
	// overlapMargin is how much later than the first message of another policy was met here one
	// must have failed, by the clock of who wrote that, to have been written beside this
	// process: what an older version wrote in its last moments is no finding, nor is a
	// clock that is ahead.
	overlapMargin = time.Minute
	// reportInterval is how often the same other policy is told of, for as long as it is seen.
	reportInterval = time.Hour
	// maxOtherPolicies bounds the memory of what was told.
	maxOtherPolicies = 100
)

// ErrPolicies is the error of the event about instances of one subscription that run different policies. Which policy decides
// depends on the instance that gets a message.
var ErrPolicies = errors.New("instances of the same group run different policies: end a deployment that is under way")

// otherPolicies are the other policies under which messages of a subscription are written.
type otherPolicies struct {
	mu       sync.Mutex
	since    time.Time            // the first message of another policy was met
	reported map[string]time.Time // by fingerprint
}

// Met looks at a message that has come back: whether somebody else writes here under
// another policy, now. An adapter calls it with the state of every message that
// comes from where redeliver writes. It may be called by many goroutines at once.
func (s *Subscription) Met(st *redeliver.State) {
	if s.Sink == nil || st.Policy == "" || st.Policy == s.Fingerprint() {
		return
	}
	r := &s.otherPolicies
	r.mu.Lock()
	if r.since.IsZero() {
		r.since = time.Now()
	}
	beside := st.LastFailed.After(r.since.Add(overlapMargin))
	r.mu.Unlock()
	if beside {
		s.Differs(st.Policy, fmt.Sprintf("a message that failed at %s was written by it", st.LastFailed.UTC().Format(time.RFC3339)))
	}
}

// Differs tells that somebody runs another policy, the one with this fingerprint: once,
// and again after an hour for as long as it is seen. how says where it was seen.
func (s *Subscription) Differs(fingerprint, how string) {
	if s.Sink == nil || !s.otherPolicies.shouldReport(fingerprint, time.Now()) {
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
	r := &s.otherPolicies
	r.mu.Lock()
	n := len(r.reported)
	r.reported = nil
	if n > 0 {
		r.since = time.Now() // what others have written until now says nothing of who writes
	}
	r.mu.Unlock()
	if n > 0 {
		s.Tell(redeliver.SubscriptionChanged{Origin: s.Origin, Group: s.Group, Change: redeliver.ChangePoliciesAgree, Detail: "all instances run " + s.Fingerprint()})
	}
}

func (r *otherPolicies) shouldReport(fingerprint string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.reported[fingerprint]; ok && now.Sub(at) < reportInterval || !ok && len(r.reported) >= maxOtherPolicies {
		return false
	}
	if r.reported == nil {
		r.reported = make(map[string]time.Time)
	}
	r.reported[fingerprint] = now
	return true
}
