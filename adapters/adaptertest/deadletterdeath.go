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
		{name: "ARunnerThatDiesBeforeItSendsLosesNothing", body: func(d *morgue) { dies(d, beforeSend, 0) }},
		{name: "ARunnerThatDiesBeforeItSettlesLosesNothing", body: func(d *morgue) { dies(d, beforeSettle, order().Window) }},
		{name: "ARunnerThatDiesBetweenWindowsLosesNothing", body: func(d *morgue) { dies(d, afterSettle, 0) }},
		{name: "AnEditThatDiesBeforeItSendsKeepsTheOriginal", body: func(d *morgue) { editDies(d, beforeSend) }},
		{name: "AnEditThatDiesBeforeItSettlesKeepsTheOriginal", body: func(d *morgue) { editDies(d, beforeSettle) }},
	}
}

// secondRunner tries to replay a DLQ that another one has.
func secondRunner(d *morgue) {
	msgs, ids := many(3)
	d.die(declined, msgs...)
	d.mend()
	first, kill := d.openOne()
	ctx, cancel := d.patience()
	defer cancel()
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

// arrow is where in a window a runner dies.
type arrow int

const (
	beforeSend   arrow = iota
	beforeSettle       // all is confirmed, and nothing is recorded
	afterSettle        // all is recorded
)

var errKilled = errors.New("the runner was killed")

// mortal is a queue whose process dies in the third window of its claim.
type mortal struct {
	deadletter.Queue
	at   arrow
	kill func()
}

func (m *mortal) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	c, err := m.Queue.Claim(ctx, h)
	return &mortalClaim{Claim: c, m: m}, err
}

type mortalClaim struct {
	deadletter.Claim
	m       *mortal
	windows int
	settled int
}

func (c *mortalClaim) dies(at arrow, n int) bool {
	if c.m.at != at || n < 3 {
		return false
	}
	c.m.kill()
	return true
}

func (c *mortalClaim) Send(ctx context.Context, msgs []*deadletter.Message) []error {
	if c.windows++; c.dies(beforeSend, c.windows) {
		return []error{errKilled}
	}
	return c.Claim.Send(ctx, msgs)
}

func (c *mortalClaim) Settle(ctx context.Context, t deadletter.Task, done []deadletter.Settlement) error {
	if c.settled++; c.dies(beforeSettle, c.settled) {
		return errKilled
	}
	err := c.Claim.Settle(ctx, t, done)
	if c.dies(afterSettle, c.settled) {
		return errKilled
	}
	return err
}

func (c *mortalClaim) Release(ctx context.Context) error {
	if c.windows >= 3 || c.settled >= 3 {
		return errKilled // the dead release nothing
	}
	return c.Claim.Release(ctx)
}

// dies kills a replay in its third window, and another process resumes it.
func dies(d *morgue, at arrow, most int) {
	msgs, ids := many(60)
	d.die(declined, msgs...)
	d.mend()
	q, kill := d.openOne()
	ctx, cancel := d.patience()
	defer cancel()
	t, err := deadletter.Run(ctx, &mortal{q, at, kill}, order())
	if err == nil {
		d.Fatalf("the replay survived: %+v", t)
	}
	next := d.queue()
	d.claimed(next)
	history, err := deadletter.History(ctx, next)
	if err != nil || len(history) != 1 || history[0].ID != t.ID || history[0].Status != deadletter.StatusInterrupted {
		d.Fatalf("after the kill the history is %+v: %v", history, err)
	}
	if t, err = deadletter.Resume(ctx, next, t.ID, "ben@ops", deadletter.Report{}); err != nil || t.Status != deadletter.StatusDone {
		d.Fatalf("the resumed replay ended as %s (%s): %v", t.Status, t.Note, err)
	}
	d.awaitCommits(ids...)
	if got := d.lie(next); len(got) > 0 {
		d.Errorf("%q still lie in the DLQ", got)
	}
	// What was sent twice may still be on its way; what is behind it shows that it is not.
	d.put(named("last")...)
	d.awaitCommits("last")
	again := 0
	for _, id := range ids {
		again += len(d.ran(id)) - 2
	}
	if again > most {
		d.Errorf("%d messages were replayed twice, want at most the window, %d", again, most)
	}
}

func editDies(d *morgue, at arrow) {
	d.die(declined, named("a")...)
	d.mend()
	q, kill := d.openOne()
	m := d.browse(q, deadletter.Filter{})[0]
	ctx, cancel := d.patience()
	defer cancel()
	wrap := &mortal{q, at, kill}
	_, err := deadletter.Edit(ctx, &eager{wrap}, deadletter.Change{Who: "ann@ops", Why: "typo", Position: m.Position, Body: []byte("new")})
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

// eager is mortal in its first window.
type eager struct{ *mortal }

func (e *eager) Claim(ctx context.Context, h deadletter.Holder) (deadletter.Claim, error) {
	c, err := e.Queue.Claim(ctx, h)
	return &mortalClaim{Claim: c, m: e.mortal, windows: 2, settled: 2}, err
}
