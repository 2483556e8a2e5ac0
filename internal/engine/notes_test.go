package engine_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A plan has a note that waits are shortened, and the error of the message says so.
func TestBlockingReportsAWaitThatItCuts(t *testing.T) {
	blocking := redeliver.Policy{Order: redeliver.OrderBlocking}
	if notes := engine.Notes(blocking); len(notes) != 1 || !strings.Contains(notes[0], "limited to 10ms to 30s") {
		t.Errorf("noted %q", notes)
	}
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(blocking)
		j.sub.KeepsPlace = true
		waits := []time.Duration{time.Hour, 30 * time.Second, time.Second}
		j.start(t, handle(func(ctx context.Context, _ *record) error {
			if st, _ := redeliver.FromContext(ctx); st.Attempts < len(waits) {
				return redeliver.RetryAfter(errOurs, waits[st.Attempts])
			}
			return nil
		}))
		j.publish("a")
		<-time.After(time.Hour)
		synctest.Wait()
		all := events[redeliver.RetryScheduled](j)
		if len(all) != 3 {
			t.Fatalf("%d retries", len(all))
		}
		if text := all[0].State.Error; all[0].Delay != 30*time.Second || !strings.Contains(text, "1h0m0s is cut to 30s") || !strings.Contains(text, errOurs.Error()) {
			t.Errorf("a retry in %s: %q", all[0].Delay, text)
		}
		for _, e := range all[1:] {
			if e.State.Error != errOurs.Error() {
				t.Errorf("a retry in %s: %q", e.Delay, e.State.Error)
			}
		}
	})
}
