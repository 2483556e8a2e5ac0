package deadletter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// A replayed message has retries, although it is older than MaxAge.
func TestTheAgeOfAReplayedMessageCountsFromItsReplay(t *testing.T) {
	began := time.Now()
	failed := began.Add(-3 * time.Hour)
	dead := &deadletter.Message{ID: "a", State: redeliver.State{
		ID: "a", Attempts: 4, FirstFailed: failed, LastFailed: failed, Replayed: failed,
		Source: redeliver.Source{Known: true, Timestamp: failed},
	}}
	st := driver.ReplayState(dead, deadletter.Info{Group: "billing", Origin: "orders"})
	policy := redeliver.Policy{MaxRetries: 3, MaxAge: time.Hour}
	if dec := policy.Decide(st, errors.New("declined"), time.Now()); dec.Action != redeliver.ActionRetryLater {
		t.Errorf("the first failure of a replayed message is answered with %s (%s), want a retry", dec.Action, dec.State.Error)
	}
	if dec := policy.Decide(st, errors.New("declined"), began.Add(61*time.Minute)); dec.Action != redeliver.ActionDeadLetter || dec.State.Reason != redeliver.ReasonExpired {
		t.Errorf("an hour later it is answered with %s (%s), want that it has expired", dec.Action, dec.State.Reason)
	}
}
