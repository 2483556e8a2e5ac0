package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redeliver/redeliver/deadletter"
)

// killedRunners tests that a runner may be killed at any step of a replay.
func killedRunners() []deadTest {
	return []deadTest{
		{name: "ASecondRunnerIsRefusedWithTheHoldersName", body: secondRunner},
		// Kills are in window 3. A window removes its messages in two calls.
		{name: "ARunnerThatDiesBeforeItSendsLosesNothing", body: func(d *dlqFixture) { killReplay(d, killableDriver{only: callWrite, left: 3}, 0) }},
		{name: "ARunnerThatDiesBeforeItSettlesLosesNothing", body: func(d *dlqFixture) {
			killReplay(d, killableDriver{only: callWrite, left: 3, after: true}, newReplay().Window)
		}},
		{name: "ARunnerThatDiesWhileItSettlesLosesNothing", body: func(d *dlqFixture) {
			killReplay(d, killableDriver{only: callRemove, left: 5, after: true}, newReplay().Window)
		}},
		{name: "ARunnerThatDiesBetweenWindowsLosesNothing", body: func(d *dlqFixture) { killReplay(d, killableDriver{only: callRemove, left: 6, after: true}, 0) }},
		{name: "AnEditThatDiesBeforeItSendsKeepsTheOriginal", body: func(d *dlqFixture) { killEdit(d, killableDriver{only: callWrite, left: 1}) }},
		{name: "AnEditThatDiesBeforeItSettlesKeepsTheOriginal", body: func(d *dlqFixture) { killEdit(d, killableDriver{only: callWrite, left: 1, after: true}) }},
	}
}

// secondRunner tries to replay a DLQ that another runner has claimed.
func secondRunner(d *dlqFixture) {
	msgs, ids := numberedMessages(3)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	first, kill := d.openOne()
	ctx := d.withTimeout()
	if _, err := first.Claim(ctx, deadletter.Holder{Who: "ann@ops", Task: "the-first"}); err != nil {
		d.Fatal(err)
	}
	second := d.queue()
	_, err := deadletter.Replay(ctx, second, newReplay())
	held, ok := errors.AsType[*deadletter.HeldError](err)
	if !ok || held.Holder.Who != "ann@ops" || held.Holder.Task != "the-first" {
		d.Fatalf("a second runner got %v, want the holder of the DLQ", err)
	}
	if got := d.idsInDLQ(second); !slices.Equal(got, ids) {
		d.Errorf("the DLQ has %q, want %q", got, ids)
	}
	if h, ok, err := second.Holder(ctx); err != nil || !ok || h.Who != "ann@ops" {
		d.Errorf("the DLQ is held by %+v, %v, %v", h, ok, err)
	}
	kill()
	d.awaitClaim(second)
	d.runReplay(second, newReplay())
	d.awaitCommits(ids...)
}

// killReplay kills the runner of a replay in the third window. Then another process resumes the replay.
func killReplay(d *dlqFixture, m killableDriver, maxTwice int) {
	msgs, ids := numberedMessages(60)
	d.makeDeadLetters(failAlways, msgs...)
	d.fixHandler()
	q := d.killableQueue(&m)
	ctx := d.withTimeout()
	t, err := deadletter.Replay(ctx, q, newReplay())
	if err == nil || !m.dead {
		d.Fatalf("the replay survived: %+v", t)
	}
	next := d.queue()
	d.awaitClaim(next)
	history, err := deadletter.History(ctx, next)
	if err != nil || len(history) != 1 || history[0].ID != t.ID || history[0].Status != deadletter.StatusInterrupted {
		d.Fatalf("after the kill the history is %+v: %v", history, err)
	}
	d.resumed(next, t.ID, maxTwice, ids...)
}

func killEdit(d *dlqFixture, m killableDriver) {
	d.makeDeadLetters(failAlways, namedMessages("a")...)
	d.fixHandler()
	q := d.killableQueue(&m)
	position := d.browse(q, deadletter.Filter{})[0].Position
	ctx := d.withTimeout()
	_, err := deadletter.Edit(ctx, q, deadletter.EditOptions{Who: "ann@ops", Why: "typo", Position: position, Body: []byte("new")})
	if err == nil {
		d.Fatal("the edit survived")
	}
	next := d.queue()
	d.retryWhileHeld("the original is visible; a killed runner may still hide it", func(context.Context) error {
		if got := d.idsInDLQ(next); !slices.Equal(got, []string{"a"}) {
			return fmt.Errorf("the DLQ has %q: %w", got, deadletter.ErrHeld)
		}
		return nil
	})
}
