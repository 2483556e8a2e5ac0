package driver_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// slowState is the state of a DLQ with slow writes. It has only the parts of driver.DLQ that leases need.
type slowState struct {
	driver.DLQ

	mu    sync.Mutex
	state driver.State
	begun time.Time
}

func (s *slowState) Info() deadletter.Info { return deadletter.Info{DLQ: "orders.dlq"} }

func (s *slowState) Load(context.Context) (driver.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.state), nil
}

// Append takes no time at first, 25 s from the 9th second, and 6 s from the 30th second.
func (s *slowState) Append(_ context.Context, entries ...driver.Entry) error {
	switch at := time.Since(s.begun); {
	case at > 30*time.Second:
		<-time.After(6 * time.Second)
	case at > 9*time.Second:
		<-time.After(25 * time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.state.Put(e)
	}
	return nil
}

// A lease that had expired when its renewal was written is lost, because another runner may have noticed that and be
// taking it.
func TestALeaseThatRanOutIsNotRevived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowState{state: make(driver.State), begun: time.Now()}
		first := driver.NewLeases(t.Context(), slow, 30*time.Second, driver.LeaseOptions{})
		second := driver.NewLeases(t.Context(), slow, 30*time.Second, driver.LeaseOptions{})
		if err := first.Lock(t.Context(), driver.ClaimLock, deadletter.Holder{Who: "first"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(31 * time.Second)                                                                       // the renewal of 0:10 comes at 0:35
		if err := second.Lock(t.Context(), driver.ClaimLock, deadletter.Holder{Who: "second"}); err != nil { // from 0:31 to 0:37
			t.Fatal(err)
		}
		if err := first.Check(); !errors.Is(err, deadletter.ErrClaimLost) {
			t.Errorf("both sessions have the lock: %v", err)
		}
	})
}

// deniedState is a state that can be written only once, by Lock.
type deniedState struct {
	slowState

	written bool
}

var errDenied = errors.New("the role may not write")

func (s *deniedState) Append(ctx context.Context, entries ...driver.Entry) error {
	if s.written {
		return errDenied
	}
	s.written = true
	return s.slowState.Append(ctx, entries...)
}

// A lease that could not be renewed says why.
func TestALostLeaseNamesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := driver.NewLeases(t.Context(), &deniedState{slowState: slowState{state: make(driver.State), begun: time.Now()}}, 30*time.Second, driver.LeaseOptions{})
		if err := l.Lock(t.Context(), driver.ClaimLock, deadletter.Holder{Who: "first"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(31 * time.Second)
		if err := l.Check(); !errors.Is(err, deadletter.ErrClaimLost) || !errors.Is(err, errDenied) {
			t.Errorf("the lease is lost with %v", err)
		}
	})
}
