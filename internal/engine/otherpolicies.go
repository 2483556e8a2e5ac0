package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

const (
	// overlapMargin is the minimum time from the arrival of the first message of another policy to a failure that shows
	// that another policy still runs. It allows for the last messages of an older version, and for clocks that differ.
	overlapMargin = time.Minute
	// reportInterval is the time after which another policy is reported again.
	reportInterval = time.Hour
	// maxOtherPolicies bounds the other policies that are remembered and reported.
	maxOtherPolicies = 100
)

// ErrPolicies is the error of the event about instances of one subscription that run different policies. Each instance decides
// by its own policy.
var ErrPolicies = errors.New("instances of the same group run different policies: finish the deployment that is under way")

// otherPolicies are the other policies under which instances of the same subscription write messages.
type otherPolicies struct {
	mu       sync.Mutex
	since    time.Time            // when the first message of another policy was seen
	reported map[string]time.Time // by fingerprint
}

// CheckPolicyOf checks whether an instance that runs another policy now has written a message that has come back. It
// reports that, at most once an hour for each policy. An adapter calls it for every message that redeliver has written. It is safe for concurrent use.
func (s *Subscription) CheckPolicyOf(st *redeliver.State) {
	if s.Sink == nil || st.Policy == "" || st.Policy == s.fingerprint {
		return
	}
	r := &s.otherPolicies
	r.mu.Lock()
	if r.since.IsZero() {
		r.since = time.Now()
	}
	overlaps := st.LastFailed.After(r.since.Add(overlapMargin))
	r.mu.Unlock()
	if overlaps && r.shouldReport(st.Policy, time.Now()) {
		s.EmitChange(redeliver.ChangePolicyDiffers, fmt.Sprintf("this instance runs policy %s, another one runs %s: a message that failed at %s was written by it",
			s.fingerprint, st.Policy, st.LastFailed.UTC().Format(time.RFC3339)), ErrPolicies)
	}
}

// shouldReport reports whether a policy has to be reported now, and remembers it if so.
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
