package adaptertest

import (
	"context"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// Pauser is a [Service] whose group can be paused, where Features.GroupPause is true.
type Pauser interface {
	Pause(ctx context.Context, topic, reason string) error
	Resume(ctx context.Context, topic string) error
}

// pauses: an operator pauses a group.
func pauses() []test {
	return []test{{name: "AGroupIsPausedAndResumed", needs: "GroupPause", body: groupPauses}}
}

// groupPauses: one process pauses all. Running attempts end. Their retries wait, and so do new messages, in processes that
// start meanwhile, too. No attempt is counted.
func groupPauses(b *fixture) {
	const n, reason, quiet = 20, "the bank is closed", 20 * time.Second // by then messages in hand have been given back
	msgs, ids := numberedMessages(n)
	goOn := make(chan struct{})
	handle := func(a *attempt) error {
		if a.State.ID == ids[0] && a.State.Attempts == 0 {
			b.hold(goOn)
			return errHandler
		}
		return nil
	}
	cfg := Config{Policy: quickPolicy(5), DrainTimeout: 10 * time.Second}
	all := []*process{b.start(cfg, handle), b.start(cfg, handle)}
	b.put(msgs[0])
	b.await("the first message runs", func() bool { return len(b.all()) == 1 })
	if err := all[0].svc.(Pauser).Pause(b.Context(), b.origin, reason); err != nil {
		b.Fatal(err)
	}
	b.awaitChanges(redeliver.ChangeGroupPaused, 2)
	for _, c := range b.changesOf(redeliver.ChangeGroupPaused) {
		if !strings.Contains(c.Detail, reason) || !strings.Contains(c.Detail, "@") {
			b.Errorf("%q says neither who paused the group nor why", c.Detail)
		}
	}
	close(goOn)
	b.await("the retry is scheduled", func() bool { return len(eventsOf[redeliver.RetryScheduled](b.journal)) == 1 })
	b.put(msgs[1:]...)
	all = append(all, b.start(cfg, handle))
	b.awaitChanges(redeliver.ChangeGroupPaused, 3)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	<-timer.C
	if ran := b.all(); len(ran) != 1 {
		b.Errorf("%d attempts began, want 1 before the pause", len(ran))
	}
	began := time.Now()
	all[0].close()
	if took := time.Since(began); took > cfg.DrainTimeout {
		b.Errorf("closing a paused process took %s", took)
	}
	if err := all[1].svc.(Pauser).Resume(b.Context(), b.origin); err != nil {
		b.Fatal(err)
	}
	b.awaitEnds(ids...)
	b.awaitChanges(redeliver.ChangeGroupResumed, 2)
	b.wantEach(1, ids[1:]...)
	if b.h.Features.KeepsAttempts {
		b.wantRuns(ids[0], 2)
	}
	b.dead(0)
}

func (b *fixture) awaitChanges(change redeliver.Change, n int) {
	b.Helper()
	b.await(string(change), func() bool { return len(b.changesOf(change)) >= n })
}
