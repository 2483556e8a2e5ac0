package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		runs    []float64
		target  *target
		median  float64
		verdict string
	}{
		{[]float64{1.3, 1.21, 1.25}, atLeast(1.2), 1.25, verdictMet},
		{[]float64{1.1, 1.19, 1.0}, atLeast(1.2), 1.1, verdictMissed},
		{[]float64{1.19, 1.5, 1.6}, atLeast(1.2), 1.5, verdictNotShown}, // the median alone would do
		{[]float64{9, 10, 3, 4}, atMost(10), 6.5, verdictMet},
		{[]float64{9, 10.1}, atMost(10), 9.55, verdictNotShown},
		{nil, atMost(10), 0, verdictNotShown},
		{[]float64{5}, nil, 5, ""},
	} {
		f := figure{Runs: c.runs, Target: c.target}
		f.finish()
		if f.Median != c.median || f.Verdict != c.verdict {
			t.Errorf("%v: median %g, %q; want %g, %q", c.runs, f.Median, f.Verdict, c.median, c.verdict)
		}
	}
}

func TestChecksumDetectsALossHiddenByACopy(t *testing.T) {
	w := newWriter()
	var values [][]byte
	for id := range uint64(100) {
		values = append(values, w.record("t", id).Value)
	}
	sum := w.written().sum
	var all, twice tally
	for i := range values {
		all.add(values[len(values)-1-i]) // in another order
		twice.add(values[max(1, i)])     // one is lost, another came twice
	}
	if all.sum.Load() != sum {
		t.Error("the checksum depends on the order")
	}
	if twice.count.Load() != all.count.Load() || twice.sum.Load() == sum {
		t.Error("a lost message and a copy of another have the same checksum as both messages")
	}
}

func TestExpectedCountsOfFailingMessages(t *testing.T) {
	w := newWriter()
	var values [][]byte
	for id := range uint64(100) {
		values = append(values, w.value(id))
	}
	for _, c := range []struct {
		failing       failing
		entries, dead int
	}{
		{failing{}, 100, 0},
		{failing{1, always}, 400, 100},
		{failing{20, 1}, 105, 0},
		{failing{40, always}, 109, 3}, // ids 0, 40 and 80
	} {
		var seen, dead tally
		for id, v := range values {
			tries := 1
			if c.failing.Every > 0 && id%c.failing.Every == 0 {
				tries = 1 + min(c.failing.Attempts, retries)
				if c.failing.Attempts > retries {
					dead.add(v)
				}
			}
			for range tries {
				seen.add(v)
			}
		}
		entries, n, sum, deadSum := c.failing.expected(w.written())
		if entries != c.entries || n != c.dead || sum != seen.sum.Load() || deadSum != dead.sum.Load() {
			t.Errorf("%+v: %d entries and %d dead, want %d and %d, or the checksums differ", c.failing, entries, n, c.entries, c.dead)
		}
	}
}

func TestEntriesAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "entries")
	l := openEntryLog(path)
	at := time.Unix(1_700_000_000, 42)
	l.add(entryStarted, 7, 2, at)
	l.add(entryForwarded, 1<<40, 255, at)
	l.add(entryEnded, 7, 0, at)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if all, ended, err := countEntries(f); all != 3 || ended != 1 || err != nil {
		t.Errorf("%d entries, %d ended, %v", all, ended, err)
	}
	got, err := readEntries(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{{entryStarted, 7, 2, at}, {entryForwarded, 1 << 40, 255, at}, {entryEnded, 7, 0, at}}
	if !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	if id, ok := idOfUUID(string(uuidOf(1 << 40))); !ok || id != 1<<40 {
		t.Errorf("the id in a UUID is read as %d", id)
	}
}

func TestLatenessOfASample(t *testing.T) {
	s, err := newSamples(200)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		s.add(time.Duration(i) * time.Millisecond)
	}
	s.add(-time.Millisecond)
	l := s.summary()
	if l.Samples != 101 || l.Early != 1 || l.Min != -1 || l.P50 != 49 || l.Max != 99 || l.Over10ms != 90 {
		t.Errorf("%+v", l)
	}
}

// A topic that no group commits has no lag: the control topic is read outside of the group.
func TestOnlyTopicsThatTheGroupReadsCount(t *testing.T) {
	s := spec{Topic: "t", Group: "g"}
	got := topicsReadBy(s, []string{"t", "t.g.retry", "t.g.retry.1s", "t.g.dlq", "t.g.dlq.state", "t.g.control", "t.other.retry"})
	if want := []string{"t", "t.g.retry", "t.g.retry.1s"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A row may change the size of values and the number of partitions; the rest is unchanged.
func TestShapeOfMessages(t *testing.T) {
	w := newShaped(shape{size: 100, partitions: 16})
	used := make(map[int32]int)
	for id := range uint64(160) {
		r := w.record("t", id)
		if len(r.Value) != 100 || idOf(r.Value) != id {
			t.Fatalf("message %d has %d bytes and says that it is %d", id, len(r.Value), idOf(r.Value))
		}
		used[r.Partition]++
	}
	if len(used) != 16 || used[0] != 10 || w.keys != keyCount {
		t.Errorf("in partitions %v, of %d keys", used, w.keys)
	}
	if r := newWriter().record("t", 5); len(r.Value) != valueSize || r.Partition != 5%partitions {
		t.Errorf("by default %d bytes in partition %d", len(r.Value), r.Partition)
	}
}

func TestCostsOfGroupsAreCombined(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	c := combine([]*outcome{
		{Finished: at.Add(10 * time.Second), Seconds: 4, Busy: 1, PeakRSS: 10, Late: &lateness{P50: 1, P99: 20, Max: 30}},
		{Finished: at.Add(8 * time.Second), Seconds: 6, Busy: 2, PeakRSS: 20, Late: &lateness{P50: 3, P99: 10, Max: 90}},
		{Finished: at.Add(9 * time.Second), Seconds: 1, Busy: 3, PeakRSS: 30, Late: &lateness{P50: 2, P99: 15, Max: 40}},
	})
	if c.seconds != 8 || c.busy != 6 || c.peak != 60 || c.late.P50 != 2 || c.late.P99 != 20 || c.late.Max != 90 {
		t.Errorf("%+v, %+v", c, c.late)
	}
}

func TestWhereMessagesWait(t *testing.T) {
	for topic, want := range map[string]bool{
		"t.g.retry": true, "t.g.retry.1s": true, "t.other.retry.1m": true,
		"t": false, "t.g.dlq": false, "t.g.control": false, "t.g.dlq.state": false, "tt.g.retry": false, "t.g.retrying": false,
	} {
		if got := waitsOn(topic, "t"); got != want {
			t.Errorf("%s: %v", topic, got)
		}
	}
}

// A message that runs after a later one of its key voids the run; messages of other keys, and keys that never come, do not.
func TestFirstRunsOfAKeyMustBeInOrder(t *testing.T) {
	k := newKeyCheck(5)
	ids := make(map[uint64][]uint64) // by key
	for id := range uint64(1000) {
		key := k.shape.keyOf(id)
		ids[key] = append(ids[key], id)
	}
	failed := make(map[uint64]bool)
	for id := uint64(0); id < 1000; id += uint64(tenth.Every) {
		failed[k.shape.keyOf(id)] = true
	}
	if len(ids) != 5 || len(failed) != 5 {
		t.Fatalf("%d keys, of which %d have messages that fail, want 5 and 5", len(ids), len(failed))
	}
	for key := uint64(5); key > 0; key-- {
		for _, id := range ids[key-1] {
			k.ran(id)
		}
	}
	if n := k.swapped.Load(); n != 0 {
		t.Errorf("%d of the messages that ran in order of their keys are said to have run too late", n)
	}
	k.ran(ids[0][1])
	if n := k.swapped.Load(); n != 1 {
		t.Errorf("%d messages are said to have run too late, want 1", n)
	}
}
