//go:build prove

package delayqueue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
)

// Handbacks forgets all ids at once, an hour after the last time, and with them those that came back a moment ago. A
// suspect on RabbitMQ whose connection was lost is charged with a crash then, although its process lives.
func TestExpectedFailureHandbacksForgetsRecentIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back delayqueue.Handbacks
		back.Add("early")
		<-time.After(time.Hour)
		back.Add("recent")
		<-time.After(time.Second)
		back.Add("another")
		if n := back.Of("recent"); n != 1 {
			t.Errorf("an id that came back a second ago counts %d times, want 1", n)
		}
	})
}
