//go:build prove

package kafka_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A message keeps its place and fails, while processes are killed at random moments. Each kill repeats one attempt at
// most; then the message goes to the DLQ, and those behind it run. 100 bytes of metadata are enough for that. Without
// metadata each process counts from 1 and reports that.
func TestABlockedMessageEndsAlthoughProcessesAreKilled(t *testing.T) {
	t.Parallel()
	const retries, minKills = 12, 8
	for name, c := range map[string]struct {
		limit    string
		inMemory bool
	}{
		"Kafka's limit":      {"", false},
		"a limit of 100":     {"100", false},
		"no metadata at all": {"0", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := crashConfig{Order: redeliver.OrderBlocking, Retries: retries, Fails: "m0000", MaxInFlight: 10}
			if c.limit != "" {
				cfg.Addrs = brokers.OwnKafka(t, brokers.KafkaOptions{Properties: map[string]string{"offset.metadata.max.bytes": c.limit}}).Addrs()
			}
			w := newCrashRun(t, cfg, 40)
			isOver := func(j crashJournal) bool { return len(j.dead) > 0 && len(j.commits) == len(w.ids)-1 }
			kills := 0
			for kills < minKills && !isOver(w.readJournal(t)) {
				p, before := w.start(t), w.readJournal(t).failed
				if !w.await(t, p, "an attempt", func(j crashJournal) bool { return j.failed > before || isOver(j) }) {
					t.Fatal("the process has ended unexpectedly")
				}
				select {
				case <-p.Ended():
				case <-time.After(time.Duration(rand.IntN(600)) * time.Millisecond):
				}
				p.end(syscall.SIGKILL)
				kills++
			}
			before := w.readJournal(t).failed
			if p := w.start(t); !w.await(t, p, "all have ended", isOver) || !w.finish(t, p) {
				t.Fatal("the process has ended unexpectedly")
			}
			j := w.readJournal(t)
			t.Logf("report: %d kills while a message keeps its place, with %s: %d attempts of %d", kills, name, j.failed, retries+1)
			if len(j.dead) != 1 || j.dead[cfg.Fails] != redeliver.ReasonExhausted {
				t.Errorf("dead letters are %v, want %s, exhausted", j.dead, cfg.Fails)
			}
			switch {
			case c.inMemory && (j.inMemory == 0 || before > 0 && kills == minKills && j.failed-before < retries+1):
				t.Errorf("%d processes reported that they count in memory, and the last one ran %d attempts", j.inMemory, j.failed-before)
			case !c.inMemory && (j.inMemory > 0 || j.failed < retries+1 || j.failed > retries+1+kills):
				t.Errorf("%d attempts, want %d to %d; %d times it was reported that they are counted in memory", j.failed, retries+1, retries+1+kills, j.inMemory)
			}
		})
	}
}
