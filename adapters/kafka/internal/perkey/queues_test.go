package perkey

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// No failure, duplicate or kill breaks the order: no record runs before the earlier ones of its key, none runs twice in
// a session, and none is lost or left behind.
func TestKeyQueuesKeepTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		if err := newQueueModel(1+r.IntN(20), 1+r.IntN(4), r.IntN).run(400); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func FuzzKeyQueues(f *testing.F) {
	f.Add([]byte("0123456789"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i := 0
		draw := func(n int) int {
			if i >= len(data) {
				return 0
			}
			i++
			return int(data[i-1]) % n
		}
		if err := newQueueModel(1+draw(20), 1+draw(4), draw).run(min(len(data)/2, 1000)); err != nil {
			t.Fatal(err)
		}
	})
}

// A session does not wait for records on the origin that compaction has deleted.
func TestKeyQueuesForgetDeletedRecords(t *testing.T) {
	var behind atomic.Int64
	queues := newQueues(&behind)
	l := &Loader{Queues: queues, From: 10}
	l.clear()
	box := mailbox{notify: func() {}}
	waiting := Copy{keyOffset: keyOffset{1, 12}, counted: true, mailbox: &box}
	l.addLoaded(&waiting, time.UnixMilli(1))
	l.addExpected(keyOffset{1, 10}, 0)
	l.finish()
	now := time.UnixMilli(1000)
	if v, until := queues.ask(&waiting, now, true); v != verdictHold || until != now.Add(heldRecheck) {
		t.Fatalf("%d until %s, want a recheck soon", v, until)
	}
	other := Copy{keyOffset: keyOffset{2, 11}, fromOrigin: true, mailbox: &box}
	queues.place(&other)
	if v, _ := queues.ask(&other, now, false); v != verdictRun {
		t.Fatalf("another key: %d", v)
	}
	if v, _ := queues.ask(&waiting, now, true); v != verdictRun {
		t.Errorf("%d, although nothing is before it", v)
	}
	if n := behind.Load(); n != 1 {
		t.Errorf("%d are counted on levels", n)
	}
}

// A lane that holds many messages parks a message behind a failed one of its key, which may wait for a few milliseconds only. The
// message comes back to a full lane. So it parks for a while: otherwise the lane would write all messages of the key again for each
// attempt of the first one.
func TestAFullLaneParksAMessageForAWhile(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	for name, row := range map[string]struct {
		failedFor  time.Duration // until the first one of the key is due
		roomy      bool
		fromOrigin bool
		want       verdict
		until      time.Duration
	}{
		"a full lane of a level, a short wait": {25 * time.Millisecond, false, false, verdictPark, levelRecheck},
		"a full lane of a level, a long wait":  {time.Minute, false, false, verdictPark, time.Minute},
		"a lane with room":                     {25 * time.Millisecond, true, false, verdictHold, 25 * time.Millisecond},
		"the origin: once only":                {25 * time.Millisecond, false, true, verdictPark, 25 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := newQueues(new(atomic.Int64))
			l := &Loader{Queues: queues}
			l.clear()
			box := mailbox{notify: func() {}}
			failed := Copy{keyOffset: keyOffset{1, 10}, counted: true, mailbox: &box}
			l.addLoaded(&failed, now.Add(row.failedFor))
			behind := Copy{keyOffset: keyOffset{1, 11}, counted: !row.fromOrigin, fromOrigin: row.fromOrigin, mailbox: &box}
			if row.fromOrigin {
				l.addExpected(keyOffset{1, 11}, 0)
			} else {
				l.addLoaded(&behind, now)
			}
			l.finish()
			if v, until := queues.ask(&behind, now, row.roomy); v != row.want || until.Sub(now) != row.until {
				t.Errorf("verdict %d for %s, want %d for %s", v, until.Sub(now), row.want, row.until)
			}
		})
	}
}

// A process that was cut off may write a copy of a record whose log was deleted meanwhile. The session has read another record at its
// offset, and must not take the copy for one of that record.
func TestACopyFromADeletedLogIsNotTakenForASettledRecord(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		written int64
		want    verdict
	}{"of the deleted log": {1_000, verdictRun}, "of this log": {2_000, verdictDrop}, "without a time": {0, verdictDrop}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queues := newQueues(new(atomic.Int64))
			l := &Loader{Queues: queues}
			l.clear()
			l.finish()
			box := mailbox{notify: func() {}}
			first := Copy{keyOffset: keyOffset{1, 0}, written: 2_000, fromOrigin: true, mailbox: &box}
			queues.place(&first)
			if v, _ := queues.ask(&first, time.UnixMilli(3_000), false); v != verdictRun {
				t.Fatalf("the record of the new log: %d", v)
			}
			queues.settle(&first)
			late := Copy{keyOffset: keyOffset{1, 0}, written: row.written, attempts: 1, mailbox: &box}
			queues.addSeen(&late, time.UnixMilli(3_000))
			if v, _ := queues.ask(&late, time.UnixMilli(3_000), true); v != row.want {
				t.Errorf("the late copy: %d, want %d", v, row.want)
			}
		})
	}
}

// A copy of a deleted log waits behind another one when its offset turns out to be that of a record of the new log. It has no order
// then, and must not hold up later records of the key.
func TestAWaitingCopyWithoutOrderHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	queues := newQueues(new(atomic.Int64))
	queues.originEnd = func() int64 { return 0 } // the new log is empty when the copies of the old one arrive
	l := &Loader{Queues: queues}
	l.clear()
	l.finish()
	box := mailbox{notify: func() {}}
	copyOf := func(offset, written int64, fromOrigin bool) *Copy {
		return &Copy{keyOffset: keyOffset{1, offset}, written: written, fromOrigin: fromOrigin, mailbox: &box}
	}
	ask := func(c *Copy, want verdict) {
		t.Helper()
		if v, _ := queues.ask(c, time.UnixMilli(3_000), true); v != want {
			t.Errorf("%d written at %d: %d, want %d", c.offset, c.written, v, want)
		}
	}
	ahead, old := copyOf(2, 1_000, false), copyOf(3, 1_000, false)
	ask(ahead, verdictRun)
	ask(old, verdictWait)
	ask(copyOf(3, 2_000, true), verdictUnordered) // the record of the new log
	later := copyOf(5, 2_000, true)
	ask(later, verdictWait)
	queues.settle(ahead)
	queues.collect(&box)
	ask(old, verdictUnordered)
	ask(later, verdictRun)
}
