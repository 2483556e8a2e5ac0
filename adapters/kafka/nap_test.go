package kafka

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// A nap that ended just before its lane looked how long it may sleep, in a partition that
// nothing was read from yet, was taken for one of an hour: the first retries on a level
// waited for that, or for a rebalance.
func TestALaneWhoseNapEndsBetweenTwoLooksGoesOn(t *testing.T) {
	now := time.Now()
	l := &lane{hold: delayqueue.NewHold[*entry](holdMost), flight: delayqueue.NewFlight[*entry](), paused: true, nap: newNap(time.Second, time.Millisecond)}
	l.nap.until = now.Add(-time.Nanosecond)
	if d := l.patience(now); d > delayqueue.Glance {
		t.Errorf("it sleeps for %s, want %s at most", d, delayqueue.Glance)
	}
	l.nap.until = now.Add(200 * time.Millisecond)
	if d := l.patience(now); d != 200*time.Millisecond {
		t.Errorf("in a nap it sleeps for %s, want what is left of it, 200ms", d)
	}
	if !l.hold.Put(now.Add(3*time.Second), nil) {
		t.Fatal("the hold takes nothing")
	}
	l.nap.until = now.Add(-time.Nanosecond)
	if d := l.patience(now); d != 2*time.Second {
		t.Errorf("with a record that is due in 3s it sleeps for %s, want 2s", d)
	}
}
