package cli

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

func TestProgressHasSensibleUnits(t *testing.T) {
	t.Parallel()
	task := func(scanned, replayed int64) *deadletter.Task {
		return &deadletter.Task{Kind: deadletter.KindReplay, Counts: deadletter.Counts{Scanned: scanned, Replayed: replayed}}
	}
	for want, got := range map[string]string{
		"replay  [........................] 0%  0 of 1,000 messages read  nothing yet":                                       (&progress{total: 1000}).line(task(0, 0), 0),
		"replay  [############............] 50%  500 of 1,000 messages read  250/s  2s left  480 replayed":                   (&progress{total: 1000}).line(task(500, 480), 2*time.Second),
		"replay  [########................] 33%  1 of 3 messages read  6.0/min  20s left  1 replayed":                        (&progress{total: 3}).line(task(1, 1), 10*time.Second),
		"replay  [########################] 100%  1,200 of 1,200 messages read  12/s  1,200 replayed":                        (&progress{total: 1000}).line(task(1200, 1200), 100*time.Second),
		"replay  [########................] 33%  500 of 1,500 messages  250/s  4s left  480 replayed, 20 replayed too often": (&progress{total: 9000, do: 1500}).line(&deadletter.Task{Kind: deadletter.KindReplay, Counts: deadletter.Counts{Scanned: 8000, Replayed: 480, Skipped: 20}}, 2*time.Second),
		"replay  12 messages read  2.4/s  nothing yet":                                                                       (&progress{total: -1}).line(task(12, 0), 5*time.Second),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
