package engine_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

// A refusal that follows an outage is news, but errors whose texts differ each time are no flood.
func TestALastingErrorIsReportedWhenItChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l engine.Lasting
		for i, c := range []struct {
			text string
			wait time.Duration
			news bool
		}{
			{"offline", 0, true},
			{"offline", 2 * time.Minute, false},
			{"denied", 0, true},
			{"denied by 7", 30 * time.Second, false},
			{"denied by 8", 30 * time.Second, true},
		} {
			<-time.After(c.wait)
			if news := l.Failed(errors.New(c.text)); news != c.news || !l.Fails() {
				t.Errorf("%d: %s is news: %t", i, c.text, news)
			}
		}
		if !l.Worked() || l.Worked() || l.Fails() {
			t.Error("the end is not reported once")
		}
		if !l.Failed(errors.New("denied by 8")) {
			t.Error("after a success an error is no news")
		}
	})
}
