package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// A message that is too old goes to the DLQ without running: a first delivery by its time in the origin or its own expiry, and a
// late retry. No attempt is counted, and the guards do not count it.
func TestAnExpiredMessageNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{MaxAge: time.Hour})
		now := time.Now()
		var ran []string
		j.start(t, handle(func(_ context.Context, r *record) error {
			ran = append(ran, r.id)
			return nil
		}))
		late := &redeliver.State{ID: "late", Attempts: 2, Error: "declined", Source: redeliver.Source{Timestamp: now.Add(-2 * time.Hour)}}
		replayed := &redeliver.State{ID: "replayed", Replays: 1, Replayed: now, Expires: now.Add(-time.Hour), Source: late.Source}
		for _, r := range []*record{
			{id: "young", created: now.Add(-59 * time.Minute)}, {id: "old", created: now.Add(-61 * time.Minute)},
			{id: "ended", created: now, expires: now.Add(-time.Millisecond)}, {id: "ends", expires: now.Add(time.Minute)}, {id: "ageless"},
			{id: "late", state: late}, {id: "replayed", state: replayed},
		} {
			j.in <- r
			synctest.Wait()
		}
		if want := []string{"young", "ends", "ageless", "replayed"}; !slices.Equal(ran, want) {
			t.Errorf("the attempts were of %q, want %q", ran, want)
		}
		settled, dead := j.all()
		for id, attempts := range map[string]int{"old": 0, "ended": 0, "late": 2} {
			if st := dead[id]; st.Reason != redeliver.ReasonExpired || st.Attempts != attempts || !strings.Contains(st.Error, "passed") {
				t.Errorf("%s is in the DLQ as %+v", id, st)
			}
		}
		if len(dead) != 3 || len(settled) != 7 || len(events[redeliver.Attempted](j)) != 4 {
			t.Errorf("dead %v, settled %v, %d attempts", dead, settled, len(events[redeliver.Attempted](j)))
		}
		if changes := j.changes(); len(changes) > 0 {
			t.Errorf("changes %q", changes)
		}
	})
}

// An immediate retry does not begin after the message's expiry.
func TestAnImmediateRetryMayExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Immediate: 3})
		runs := 0
		j.start(t, handle(func(context.Context, *record) error {
			runs++
			<-time.After(40 * time.Second)
			return errOurs
		}))
		j.in <- &record{id: "a", expires: time.Now().Add(time.Minute)}
		<-time.After(time.Hour)
		synctest.Wait()
		if _, dead := j.all(); runs != 2 || dead["a"].Reason != redeliver.ReasonExpired || dead["a"].Attempts != 2 {
			t.Errorf("%d runs, dead as %+v", runs, dead["a"])
		}
	})
}

// A message that expires while it waits for its batch is not in the batch, and no attempt of it is reported.
func TestAnExpiredMessageIsInNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{Timeout: time.Hour}), &batchRecorder{}
		j.start(t, bs.options(redeliver.BatchConfig{Size: 10, Timeout: time.Minute}, nil))
		now := time.Now()
		j.in <- &record{id: "old", expires: now.Add(-1)}
		j.in <- &record{id: "soon", expires: now.Add(30 * time.Second)}
		j.in <- &record{id: "fine", expires: now.Add(90 * time.Second)}
		<-time.After(time.Minute)
		if got := bs.take(); !slices.Equal(got, []string{"fine"}) {
			t.Errorf("batches %q", got)
		}
		_, dead := j.all()
		if len(dead) != 2 || dead["old"].Reason != redeliver.ReasonExpired || dead["soon"].Reason != redeliver.ReasonExpired || dead["soon"].Attempts != 0 {
			t.Errorf("dead: %v", dead)
		}
		if a := events[redeliver.Attempted](j); len(a) != 1 || a[0].State.ID != "fine" {
			t.Errorf("attempts %+v", a)
		}
	})
}

// When every message in the queue has expired, no batch runs, and the next message starts one.
func TestNoBatchRunsWhenAllMessagesHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{}), &batchRecorder{}
		j.start(t, bs.options(redeliver.BatchConfig{Size: 10, Timeout: time.Minute}, nil))
		j.in <- &record{id: "soon", expires: time.Now().Add(time.Second)}
		<-time.After(time.Minute)
		if got := bs.take(); got != nil {
			t.Errorf("batches %q", got)
		}
		j.in <- &record{id: "next"}
		<-time.After(time.Minute)
		if got := bs.take(); !slices.Equal(got, []string{"next"}) || len(j.dead) != 1 {
			t.Errorf("batches %q, dead %v", got, j.dead)
		}
	})
}
