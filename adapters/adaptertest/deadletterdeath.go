package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redeliver/redeliver/deadletter"
)

// dying: a runner may be killed at any arrow of a replay.
func dying() []deadTest {
	return []deadTest{
		{name: "ASecondRunnerIsRefusedByName", body: secondRunner},
		// In the third window, of which each removes its messages in two calls.
		{name: "ARunnerThatDiesBeforeItSendsLosesNothing", body: func(d *morgue) { dies(d, mortalDriver{only: callWrite, left: 3}, 0) }},
		{name: "ARunnerThatDiesBeforeItSettlesLosesNothing", body: func(d *morgue) { dies(d, mortalDriver{only: callWrite, left: 3, behind: true}, order().Window) }},
		{name: "ARunnerThatDiesWhileItSettlesLosesNothing", body: func(d *morgue) { dies(d, mortalDriver{only: callRemove, left: 5, behind: true}, order().Window) }},
		{name: "ARunnerThatDiesBetweenWindowsLosesNothing", body: func(d *morgue) { dies(d, mortalDriver{only: callRemove, left: 6, behind: true}, 0) }},
		{name: "AnEditThatDiesBeforeItSendsKeepsTheOriginal", body: func(d *morgue) { editDies(d, mortalDriver{only: callWrite, left: 1}) }},
		{name: "AnEditThatDiesBeforeItSettlesKeepsTheOriginal", body: func(d *morgue) { editDies(d, mortalDriver{only: callWrite, left: 1, behind: true}) }},
	}
}

// secondRunner tries to replay a DLQ that another one has.
func secondRunner(d *morgue) {
	msgs, ids := many(3)
	d.die(declined, msgs...)
	d.mend()
	first, kill := d.openOne()
	ctx := d.patience()
	if _, err := first.Claim(ctx, deadletter.Holder{Who: "ann@ops", Task: "the-first"}); err != nil {
		d.Fatal(err)
	}
	second := d.queue()
	_, err := deadletter.Run(ctx, second, order())
	held, ok := errors.AsType[*deadletter.HeldError](err)
	if !ok || held.Holder.Who != "ann@ops" || held.Holder.Task != "the-first" {
		d.Fatalf("a second runner was told %v, want who has the DLQ", err)
	}
	if got := d.lie(second); !slices.Equal(got, ids) {
		d.Errorf("the DLQ has %q, want %q", got, ids)
	}
	if h, ok, err := second.Holder(ctx); err != nil || !ok || h.Who != "ann@ops" {
		d.Errorf("the DLQ is held by %+v, %v, %v", h, ok, err)
	}
	kill()
	d.claimed(second)
	d.replayed(second, order())
	d.awaitCommits(ids...)
}

// dies kills a replay in its third window, and another process resumes it.
func dies(d *morgue, m mortalDriver, most int) {
	msgs, ids := many(60)
	d.die(declined, msgs...)
	d.mend()
	q := d.mortal(&m)
	ctx := d.patience()
	t, err := deadletter.Run(ctx, q, order())
	if err == nil || !m.dead {
		d.Fatalf("the replay survived: %+v", t)
	}
	next := d.queue()
	d.claimed(next)
	history, err := deadletter.History(ctx, next)
	if err != nil || len(history) != 1 || history[0].ID != t.ID || history[0].Status != deadletter.StatusInterrupted {
		d.Fatalf("after the kill the history is %+v: %v", history, err)
	}
	d.resumed(next, t.ID, most, ids...)
}

func editDies(d *morgue, dying mortalDriver) {
	d.die(declined, named("a")...)
	d.mend()
	q := d.mortal(&dying)
	m := d.browse(q, deadletter.Filter{})[0]
	ctx := d.patience()
	_, err := deadletter.Edit(ctx, q, deadletter.Change{Who: "ann@ops", Why: "typo", Position: m.Position, Body: []byte("new")})
	if err == nil {
		d.Fatal("the edit survived")
	}
	next := d.queue()
	d.retried("the original is seen, which the dead may still hide", func(context.Context) error {
		if got := d.lie(next); !slices.Equal(got, []string{"a"}) {
			return fmt.Errorf("the DLQ has %q: %w", got, deadletter.ErrHeld)
		}
		return nil
	})
}
