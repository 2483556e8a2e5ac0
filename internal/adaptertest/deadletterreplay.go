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

// replaying tests that a replayed message reaches the group that failed it, unchanged.
func replaying() []deadTest {
	return []deadTest{
		{name: "AReplayEmptiesTheDLQ", body: replayAll},
		{name: "AReplayReachesNoOtherGroup", needs: "ManyGroups", groups: 2, body: replayNoOther},
		{name: "AReplaySendsOnlyWhatItsFilterMatches", body: replaySome},
		{name: "AMessageThatComesBackTooOftenStays", body: replayedTooOften},
		{name: "AFailedCanaryStopsTheReplay", body: canaryStops},
		{name: "ACanaryThatSucceedsIsFollowedByTheRest", body: canaryIsFollowed},
		{name: "ADryRunCountsAndSendsNothing", body: dryRun},
		{name: "AMessageOfAnotherGroupIsRefused", body: refusesMismatch},
		{name: "APausedReplayResumesWhereItStopped", body: pausedReplay},
		{name: "ACancelledReplaySendsNothingTwice", body: cancelledReplay},
	}
}

func replayAll(d *dlqFixture) {
	msgs, ids := numberedMessages(25)
	for i := range msgs {
		msgs[i].Headers = []Header{{"tenant", []byte("acme")}}
		if d.h.Features.OrderFirstAttempts {
			msgs[i].Key = []byte{byte(i % 3)}
		}
	}
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	d.fixHandler()
	t := d.runReplay(q, newReplay())
	d.awaitCommits(ids...)
	d.wantEmpty(q)
	if t.Counts.Replayed != 25 || t.Who != "ann@ops" || t.Why == "" || t.Ended.IsZero() {
		d.Errorf("the task says %+v", t)
	}
	for i, id := range ids {
		as := d.ran(id)
		if len(as) != 2 {
			d.Fatalf("%s ran %d times, want once and once more", id, len(as))
		}
		again := as[1]
		d.checkSame("the replay of "+id, again.Seen, msgs[i])
		if again.State.Attempt() != 1 || again.State.Replays != 1 || again.State.FirstFailed.IsZero() {
			d.Errorf("%s ran again as attempt %d after %d replays, first failed %s", id, again.State.Attempt(), again.State.Replays, again.State.FirstFailed)
		}
	}
	d.wantHeadersTrusted()
	history, err := deadletter.History(d.Context(), q)
	if err != nil || len(history) != 1 || history[0].Status != deadletter.StatusDone || history[0].Counts.Replayed != 25 {
		d.Errorf("the history is %+v, %v", history, err)
	}
}

func replayNoOther(d *dlqFixture) {
	msgs, ids := numberedMessages(5)
	other := newJournal()
	d.startAs(d.groups[1], other, Config{Policy: quickPolicy(1)}, succeed, middleware.Retry())
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	d.runReplay(d.queue(), newReplay())
	d.awaitCommits(ids...)
	d.ranOnceIn(other, ids)
}

func replaySome(d *dlqFixture) {
	msgs, ids := numberedMessages(12)
	d.makeDeadLetters(func(id string) error {
		if id < "m-004" {
			return errors.New("no such account: " + strings.TrimPrefix(id, "m-"))
		}
		return errHandler
	}, msgs...)
	q := d.queue()
	one := d.browse(q, deadletter.Filter{IDs: []string{"m-002"}})
	if len(one) != 1 {
		d.Fatalf("%d messages have the id m-002", len(one))
	}
	d.fixHandler()
	r := newReplay()
	r.Filter.Fingerprints = []string{deadletter.Fingerprint(one[0])}
	if t := d.runReplay(q, r); t.Counts.Replayed != 4 || t.Counts.Scanned != 12 {
		d.Errorf("the task says %+v", t.Counts)
	}
	d.awaitCommits(ids[:4]...)
	if got := d.idsInDLQ(q); !slices.Equal(got, ids[4:]) {
		d.Errorf("the DLQ has %q, want %q", got, ids[4:])
	}
	d.runReplay(q, newReplay()) // messages behind settled ones are still found
	d.awaitCommits(ids...)
	d.wantEmpty(q)
}

func replayedTooOften(d *dlqFixture) {
	d.makeDeadLetters(failAlways, namedMessages("a")...)
	q := d.queue()
	for n := 1; n <= 2; n++ {
		r := newReplay()
		r.MaxReplays = 2
		if t := d.runReplay(q, r); t.Counts.Replayed != 1 {
			d.Fatalf("replay %d says %+v", n, t.Counts)
		}
		awaitEvents[redeliver.DeadLettered](d.fixture, n+1)
		if m := d.browse(q, deadletter.Filter{}); len(m) != 1 || m[0].State.Replays != n || m[0].ID != "a" {
			d.Fatalf("after replay %d the DLQ has %d messages: %+v", n, len(m), m)
		}
	}
	r := newReplay()
	r.MaxReplays = 2
	if t := d.runReplay(q, r); t.Counts.Replayed != 0 || t.Counts.Skipped != 1 {
		d.Errorf("the third replay says %+v", t.Counts)
	}
	if m := d.browse(q, deadletter.Filter{}); len(m) != 1 {
		d.Fatalf("the DLQ has %+v", m)
	}
	d.fixHandler()
	r.MaxReplays = 3
	d.runReplay(q, r)
	d.awaitCommits("a")
}

func canaryStops(d *dlqFixture) {
	msgs, _ := numberedMessages(30)
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	r := newReplay()
	r.Canary, r.Watch = []int{1, 10}, Timeout
	ctx := d.withTimeout()
	t, err := deadletter.Replay(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusStopped || t.Counts.Replayed != 1 || t.Counts.Returned != 1 {
		d.Fatalf("the canary ended as %s (%s) with %+v: %v", t.Status, t.Note, t.Counts, err)
	}
	if got := d.idsInDLQ(q); len(got) != 30 {
		d.Errorf("%d messages are in the DLQ, want all 30", len(got))
	}
}

func canaryIsFollowed(d *dlqFixture) {
	msgs, ids := numberedMessages(30)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	r := newReplay()
	var steps []int64
	r.Canary, r.Watch = []int{1, 10}, 300*time.Millisecond
	r.Report.Progress = func(t deadletter.Task) { steps = append(steps, t.Counts.Replayed) }
	if t := d.runReplay(d.queue(), r); t.Counts.Replayed != 30 {
		d.Errorf("the task says %+v", t.Counts)
	}
	if !slices.Contains(steps, 1) || !slices.Contains(steps, 11) {
		d.Errorf("the steps were %v, want 1, and 10 more", steps)
	}
	d.awaitCommits(ids...)
}

func dryRun(d *dlqFixture) {
	msgs, ids := numberedMessages(7)
	d.makeDeadLetters(failAlways, msgs...)
	q := d.queue()
	f, err := deadletter.DryRun(d.Context(), q, newReplay())
	if err != nil || f.Replay != 7 || f.Scanned != 7 || f.ReplayTo != q.Info().ReplayTo {
		d.Errorf("the dry run says %+v: %v", f, err)
	}
	if got := d.idsInDLQ(q); !slices.Equal(got, ids) {
		d.Errorf("the DLQ has %q, want %q", got, ids)
	}
}

// refusesMismatch adds a message whose headers name another group to the DLQ.
func refusesMismatch(d *dlqFixture) {
	d.makeDeadLetters(failAlways, namedMessages("a")...)
	q := d.queue()
	ctx := d.withTimeout()
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
	d.fixHandler()
	r, results := newReplay(), make(map[string]deadletter.Result)
	r.Report.Result = func(one deadletter.Result) { results[one.ID] = one }
	t := d.runReplay(q, r)
	if t.Counts.Replayed != 1 || t.Counts.Refused != 1 {
		d.Errorf("the task says %+v", t.Counts)
	}
	if len(results) != 2 || results["a"].Outcome != deadletter.OutcomeReplayed || results["b"].Outcome != deadletter.OutcomeRefused || results["b"].Why == "" {
		d.Errorf("the results are %+v", results)
	}
	d.awaitCommits("a")
	left := d.browse(q, deadletter.Filter{})
	if len(left) != 1 || left[0].Mismatch == "" {
		d.Errorf("the DLQ has %+v", left)
	}
}

func pausedReplay(d *dlqFixture) {
	msgs, ids := numberedMessages(30)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	q := d.queue()
	ctx := d.withTimeout()
	r := newReplay()
	r.Rate, r.Window = 20, 5 // slow enough for the pause to be noticed
	asked := false
	r.Report.Progress = func(t deadletter.Task) {
		if t.Counts.Replayed > 0 && !asked {
			asked = true
			if err := deadletter.Pause(ctx, q, t.ID); err != nil {
				d.Error(err)
			}
		}
	}
	t, err := deadletter.Replay(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusPaused || t.Counts.Replayed == 0 {
		d.Fatalf("the replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.resumed(q, t.ID, 0, ids...)
}

// cancelledReplay cancels the context of a replay while its first window is being sent, as Ctrl-C does. Then another runner resumes
// the replay.
func cancelledReplay(d *dlqFixture) {
	msgs, ids := numberedMessages(30)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	q := d.queue()
	replayCtx, cancelReplay := context.WithCancel(d.withTimeout())
	defer cancelReplay()
	once := &killableDriver{only: callWrite, left: 1, lives: true, kill: cancelReplay}
	t, err := deadletter.Replay(replayCtx, once.over(q), newReplay())
	if !errors.Is(err, context.Canceled) || t.Status != deadletter.StatusPaused || t.Counts.Replayed == 0 {
		d.Fatalf("the replay ended as %s with %+v: %v", t.Status, t.Counts, err)
	}
	d.resumed(q, t.ID, 0, ids...)
}

// resumed lets another runner finish the replay of ids, of which up to maxTwice are sent twice.
func (d *dlqFixture) resumed(q deadletter.Queue, id string, maxTwice int, ids ...string) {
	d.Helper()
	t, err := deadletter.Resume(d.withTimeout(), q, id, deadletter.ResumeOptions{Who: "ben@ops"})
	if err != nil || t.Status != deadletter.StatusDone || t.Counts.Replayed != int64(len(ids)) {
		d.Fatalf("the resumed replay ended as %s (%s) with %+v: %v", t.Status, t.Note, t.Counts, err)
	}
	d.replayedOnce(q, maxTwice, ids...)
}
