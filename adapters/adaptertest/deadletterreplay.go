package adaptertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/middleware"
)

// replaying: what is replayed reaches the group that failed it, as it was.
func replaying() []deadTest {
	return []deadTest{
		{name: "AReplayEmptiesTheDLQ", body: replayAll},
		{name: "AReplayReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: replayNoOther},
		{name: "AReplayTakesWhatItsFilterTakesAndNoMore", body: replaySome},
		{name: "AMessageThatComesBackTooOftenIsQuarantined", body: quarantined},
		{name: "ACanaryStopsByItselfWhenItComesBack", body: canaryStops},
		{name: "ACanaryThatSucceedsIsFollowedByTheRest", body: canaryGoesOn},
		{name: "ADryRunSaysHowManyAndSendsNone", body: dryRun},
		{name: "AMessageOfAnotherGroupIsRefused", body: refusesMismatch},
		{name: "APausedReplayGoesOnWhereItWas", body: pausedReplay},
		{name: "AReplayThatIsToldToEndSendsNothingTwice", body: toldToEnd},
	}
}

func replayAll(d *morgue) {
	msgs, ids := many(25)
	for i := range msgs {
		msgs[i].Headers = []Header{{"tenant", []byte("acme")}}
		if d.h.Features.KeyOrder {
			msgs[i].Key = []byte{byte(i % 3)}
		}
	}
	d.die(declined, msgs...)
	q := d.queue()
	d.mend()
	t := d.replayed(q, order())
	d.awaitCommits(ids...)
	d.empty(q)
	if t.Counts.Replayed != 25 || t.Who != "ann@ops" || t.Why == "" || t.Ended.IsZero() {
		d.Errorf("the task says %+v", t)
	}
	for i, id := range ids {
		as := d.ran(id)
		if len(as) != 2 {
			d.Fatalf("%s ran %d times, want once and once more", id, len(as))
		}
		again := as[1]
		d.same("the replay of "+id, again.Seen, msgs[i])
		if again.State.Attempt() != 1 || again.State.Replays != 1 || again.State.FirstFailed.IsZero() {
			d.Errorf("%s ran again as attempt %d after %d replays, first failed %s", id, again.State.Attempt(), again.State.Replays, again.State.FirstFailed)
		}
	}
	d.wantBelieved()
	history, err := deadletter.History(d.Context(), q)
	if err != nil || len(history) != 1 || history[0].Status != deadletter.StatusDone || history[0].Counts.Replayed != 25 {
		d.Errorf("the history is %+v, %v", history, err)
	}
}

func replayNoOther(d *morgue) {
	msgs, ids := many(5)
	other := newJournal()
	d.startAs(d.groups[1], other, Config{Policy: quick(1)}, succeed, middleware.Retry())
	d.die(declined, msgs...)
	d.mend()
	d.replayed(d.queue(), order())
	d.awaitCommits(ids...)
	d.ranOnceIn(other, ids)
}

func replaySome(d *morgue) {
	msgs, ids := many(12)
	d.die(func(id string) error {
		if id < "m-004" {
			return errors.New("no such account: " + strings.TrimPrefix(id, "m-"))
		}
		return errDeclined
	}, msgs...)
	q := d.queue()
	one := d.browse(q, deadletter.Filter{IDs: []string{"m-002"}})
	if len(one) != 1 {
		d.Fatalf("%d messages have the id m-002", len(one))
	}
	d.mend()
	r := order()
	r.Filter.Fingerprints = []string{deadletter.Fingerprint(one[0])}
	if t := d.replayed(q, r); t.Counts.Replayed != 4 || t.Counts.Scanned != 12 {
		d.Errorf("the task says %+v", t.Counts)
	}
	d.awaitCommits(ids[:4]...)
	if got := d.lie(q); !slices.Equal(got, ids[4:]) {
		d.Errorf("the DLQ has %q, want %q", got, ids[4:])
	}
	d.replayed(q, order()) // what lay behind what is settled is still found
	d.awaitCommits(ids...)
	d.empty(q)
}

func quarantined(d *morgue) {
	d.die(declined, named("a")...)
	q := d.queue()
	for n := 1; n <= 2; n++ {
		r := order()
		r.MaxReplays = 2
		if t := d.replayed(q, r); t.Counts.Replayed != 1 {
			d.Fatalf("replay %d says %+v", n, t.Counts)
		}
		awaitEvents[redeliver.DeadLettered](d.bench, n+1)
		if m := d.browse(q, deadletter.Filter{}); len(m) != 1 || m[0].State.Replays != n || m[0].ID != "a" {
			d.Fatalf("after replay %d the DLQ has %d messages: %+v", n, len(m), m)
		}
	}
	r := order()
	r.MaxReplays = 2
	if t := d.replayed(q, r); t.Counts.Replayed != 0 || t.Counts.Quarantined != 1 {
		d.Errorf("the third replay says %+v", t.Counts)
	}
	if m := d.browse(q, deadletter.Filter{}); len(m) != 1 || m[0].Mark != deadletter.Quarantined {
		d.Fatalf("the DLQ has %+v", m)
	}
	d.mend()
	r.Filter.Quarantined = true
	d.replayed(q, r)
	d.awaitCommits("a")
}

func canaryStops(d *morgue) {
	msgs, _ := many(30)
	d.die(declined, msgs...)
	q := d.queue()
	r := order()
	r.Canary, r.Watch = []int{1, 10}, Timeout
	ctx := d.patience()
	t, err := deadletter.Run(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusStopped || t.Counts.Replayed != 1 || t.Counts.CameBack != 1 {
		d.Fatalf("the canary ended as %s (%s) with %+v: %v", t.Status, t.Note, t.Counts, err)
	}
	if got := d.lie(q); len(got) != 30 {
		d.Errorf("%d messages lie in the DLQ, want all 30", len(got))
	}
}

func canaryGoesOn(d *morgue) {
	msgs, ids := many(30)
	d.die(declined, msgs...)
	d.mend()
	r := order()
	var steps []int64
	r.Canary, r.Watch = []int{1, 10}, 300*time.Millisecond
	r.Report.Progress = func(t deadletter.Task) { steps = append(steps, t.Counts.Replayed) }
	if t := d.replayed(d.queue(), r); t.Counts.Replayed != 30 {
		d.Errorf("the task says %+v", t.Counts)
	}
	if !slices.Contains(steps, 1) || !slices.Contains(steps, 11) {
		d.Errorf("the steps were %v, want 1, and 10 more", steps)
	}
	d.awaitCommits(ids...)
}

func dryRun(d *morgue) {
	msgs, ids := many(7)
	d.die(declined, msgs...)
	q := d.queue()
	f, err := deadletter.DryRun(d.Context(), q, order())
	if err != nil || f.Replay != 7 || f.Scanned != 7 || f.Back != q.Info().Back {
		d.Errorf("the dry run says %+v: %v", f, err)
	}
	if got := d.lie(q); !slices.Equal(got, ids) {
		d.Errorf("the DLQ has %q, want %q", got, ids)
	}
}

// refusesMismatch puts a message into the DLQ whose headers name another group.
func refusesMismatch(d *morgue) {
	d.die(declined, named("a")...)
	q := d.queue()
	ctx := d.patience()
	c, err := q.Claim(ctx, deadletter.Holder{Who: "eve", Task: "t"})
	if err != nil {
		d.Fatal(err)
	}
	lost := *d.browse(q, deadletter.Filter{})[0]
	lost.ID, lost.State.ID, lost.State.Group = "b", "b", "somebody-else"
	err = errors.Join(c.Add(ctx, []*deadletter.Message{&lost})...)
	if err = errors.Join(err, c.Release(ctx)); err != nil {
		d.Fatal(err)
	}
	d.mend()
	r, results := order(), make(map[string]deadletter.Result)
	r.Report.Result = func(one deadletter.Result) { results[one.ID] = one }
	t := d.replayed(q, r)
	if t.Counts.Replayed != 1 || t.Counts.Refused != 1 {
		d.Errorf("the task says %+v", t.Counts)
	}
	if len(results) != 2 || results["a"].Outcome != deadletter.Replayed || results["b"].Outcome != deadletter.Refused || results["b"].Why == "" {
		d.Errorf("the results are %+v", results)
	}
	d.awaitCommits("a")
	left := d.browse(q, deadletter.Filter{})
	if len(left) != 1 || left[0].Mismatch == "" || left[0].Mark != deadletter.Refused {
		d.Errorf("the DLQ has %+v", left)
	}
}

func pausedReplay(d *morgue) {
	msgs, ids := many(30)
	d.die(declined, msgs...)
	d.mend()
	q := d.queue()
	ctx := d.patience()
	r := order()
	r.Rate, r.Window = 20, 5 // it takes longer than its orders are not looked at
	asked := false
	r.Report.Progress = func(t deadletter.Task) {
		if t.Counts.Replayed > 0 && !asked {
			asked = true
			if err := deadletter.Pause(ctx, q, t.ID); err != nil {
				d.Error(err)
			}
		}
	}
	t, err := deadletter.Run(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusPaused || t.Counts.Replayed == 0 {
		d.Fatalf("the replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.resumed(q, t.ID, 0, ids...)
}

// toldToEnd ends the context of a replay while its first window is on its way, as
// Ctrl-C does, and another runner goes on.
func toldToEnd(d *morgue) {
	msgs, ids := many(30)
	d.die(declined, msgs...)
	d.mend()
	q := d.queue()
	told, tell := context.WithCancel(d.patience())
	defer tell()
	once := &mortalDriver{only: callWrite, left: 1, lives: true, kill: tell}
	t, err := deadletter.Run(told, once.over(q), order())
	if !errors.Is(err, context.Canceled) || t.Status != deadletter.StatusPaused || t.Counts.Replayed == 0 {
		d.Fatalf("the replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.resumed(q, t.ID, 0, ids...)
}

// resumed has another runner finish the replay of ids, of which up to most are sent twice.
func (d *morgue) resumed(q deadletter.Queue, id string, most int, ids ...string) {
	d.Helper()
	t, err := deadletter.Resume(d.patience(), q, id, "ben@ops", deadletter.Report{})
	if err != nil || t.Status != deadletter.StatusDone || t.Counts.Replayed != int64(len(ids)) {
		d.Fatalf("the resumed replay ended as %s (%s) with %+v: %v", t.Status, t.Note, t.Counts, err)
	}
	d.replayedOnce(q, most, ids...)
}
