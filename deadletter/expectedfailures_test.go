//go:build prove

package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// The policy of a replayed message begins anew, but MaxAge still counts from its place in the origin. So a replay of an
// older message has no retry: its first failure is its last, and nothing says so before.
func TestExpectedFailureAReplayOfAnOldMessageHasNoRetry(t *testing.T) {
	now := time.Now()
	failed := now.Add(-3 * time.Hour)
	dead := &deadletter.Message{ID: "a", State: redeliver.State{
		ID: "a", Attempts: 4, FirstFailed: failed, LastFailed: failed,
		Source: redeliver.Source{Known: true, Timestamp: failed},
	}}
	st := deadletter.NewState(dead, deadletter.Info{Group: "billing", Origin: "orders"})
	policy := redeliver.Policy{MaxRetries: 3, MaxAge: time.Hour}
	if dec := policy.Decide(st, errors.New("declined"), now); dec.Action != redeliver.RetryLater {
		t.Errorf("the first failure of a replayed message is answered with %s (%s), want a retry", dec.Action, dec.State.Error)
	}
}
