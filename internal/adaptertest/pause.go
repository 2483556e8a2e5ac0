package adaptertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// Pauser is a [Service] whose group can be paused, where Features.GroupPause is true.
type Pauser interface {
	Pause(ctx context.Context, topic, reason string) error
	Resume(ctx context.Context, topic string) error
}

// NewPauser is a [Pauser] whose new messages can be paused alone, where Features.NewPause is true.
type NewPauser interface {
	PauseNew(ctx context.Context, topic, reason string) error
}

// pauses tests that an operator can pause a group.
func pauses() []test {
	return []test{
		{name: "AGroupIsPausedAndResumed", needs: "GroupPause", body: groupPauses},
		{name: "RetriesContinueWhileNewMessagesArePaused", needs: "NewPause", body: newPauses},
		{name: "ABlockingPolicyKeepsItsOrderThroughAPause", needs: "GroupPause OrderBlocking", body: inPlace.pauses},
		{name: "AKeyKeepsItsOrderThroughAPause", needs: "GroupPause OrderThroughRetries", body: ofOneKey.pauses},
	}
}

const pauseReason = "the bank is closed"

// pause pauses the group, and returns when n processes report it.
func (p *process) pause(n int) {
	p.b.Helper()
	if err := p.pauser().Pause(p.b.Context(), p.b.origin, pauseReason); err != nil {
		p.b.Fatal(err)
	}
	p.b.awaitChanges(redeliver.ChangeGroupPaused, n)
}

// resume ends the pause.
func (p *process) resume() {
	p.b.Helper()
	if err := p.pauser().Resume(p.b.Context(), p.b.origin); err != nil {
		p.b.Fatal(err)
	}
}

// operations returns what may pause a service: the service itself, or the operations of its client.
func operations(svc Service) any {
	if c, ok := svc.(consumer); ok {
		svc = c.open()
	}
	if _, ok := svc.(Pauser); ok {
		return svc
	}
	if s, ok := svc.(interface{ Operations() *mq.Operations }); ok {
		return s.Operations()
	}
	return svc
}

func (p *process) pauser() Pauser {
	p.b.Helper()
	s, ok := operations(p.svc).(Pauser)
	if !ok {
		p.b.Fatalf("a %T is not a Pauser, but Features.GroupPause is true", p.svc)
	}
	return s
}

// checkNoMoreRuns waits 20 s, time to give messages back, and checks that n attempts have begun by then.
func (b *fixture) checkNoMoreRuns(n int) {
	b.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	<-timer.C
	if ran := b.all(); len(ran) != n {
		b.Errorf("%d attempts began, want %d before the pause", len(ran), n)
	}
}

// groupPauses pauses all processes from one. Running attempts may end. Their retries and new messages must wait,
// uncounted, also in processes that start meanwhile.
func groupPauses(b *fixture) {
	msgs, ids := numberedMessages(20)
	goOn := make(chan struct{})
	handle := b.failsLate(ids[0], goOn)
	cfg := Config{Policy: quickPolicy(5), DrainTimeout: 10 * time.Second}
	all := []*process{b.start(cfg, handle), b.start(cfg, handle)}
	b.put(msgs[0])
	b.await("the first message runs", func() bool { return len(b.all()) == 1 })
	all[0].pause(2)
	for _, c := range b.changesOf(redeliver.ChangeGroupPaused) {
		if !strings.Contains(c.Detail, pauseReason) || !strings.Contains(c.Detail, "@") {
			b.Errorf("%q says neither who paused the group nor why", c.Detail)
		}
	}
	close(goOn)
	b.await("the retry is scheduled", func() bool { return len(eventsOf[redeliver.RetryScheduled](b.journal)) == 1 })
	b.put(msgs[1:]...)
	b.start(cfg, handle)
	b.awaitChanges(redeliver.ChangeGroupPaused, 3)
	b.checkNoMoreRuns(1)
	began := time.Now()
	all[0].close()
	if took := time.Since(began); took > cfg.DrainTimeout {
		b.Errorf("closing a paused process took %s", took)
	}
	all[1].resume()
	b.awaitEnds(ids...)
	b.awaitChanges(redeliver.ChangeGroupResumed, 2)
	b.wantEach(1, ids[1:]...)
	if b.h.Features.KeepsAttempts {
		b.wantRuns(ids[0], 2)
	}
	b.dead(0)
}

// newPauses pauses new messages. A message that has begun must be retried until it is done. New messages must wait for the end of
// the pause. A second pause replaces the first one in running processes.
func newPauses(b *fixture) {
	msgs, ids := numberedMessages(50)
	goOn := make(chan struct{})
	failing := b.failsLate(ids[0], goOn)
	cfg := Config{Policy: quickPolicy(5)}
	p := b.start(cfg, func(a *attempt) error {
		if a.State.ID == ids[0] && a.State.Attempts == 1 {
			return errHandler
		}
		return failing(a)
	})
	b.put(msgs[0])
	b.await("the first message runs", func() bool { return len(b.all()) == 1 })
	pauser, ok := operations(p.svc).(NewPauser)
	if !ok {
		b.Fatalf("a %T is not a NewPauser, but Features.NewPause is true", p.svc)
	}
	if err := pauser.PauseNew(b.Context(), b.origin, pauseReason); err != nil {
		b.Fatal(err)
	}
	b.awaitChanges(redeliver.ChangeGroupPaused, 1)
	b.put(msgs[1:]...)
	close(goOn)
	b.awaitEnds(ids[0])
	b.checkNoMoreRuns(3)
	p.pause(2)
	p.resume()
	b.awaitEnds(ids...)
	b.wantEach(1, ids[1:]...)
	b.wantRuns(ids[0], 3)
	b.dead(0)
}

// failsLate fails the first attempt of a message when goOn is closed.
func (b *fixture) failsLate(id string, goOn <-chan struct{}) handler {
	return func(a *attempt) error {
		if a.State.ID == id && a.State.Attempts == 0 {
			b.hold(goOn)
			return errHandler
		}
		return nil
	}
}

// pauses tests that the message that failed comes first after a pause, even in another process.
func (o ordered) pauses(b *fixture) {
	ids := []string{"failing", "behind", "last"}
	goOn := make(chan struct{})
	cfg, handle := Config{Policy: o.policy(5)}, b.failsLate(ids[0], goOn)
	p := b.start(cfg, handle)
	b.put(o.messages(b, ids...)...)
	b.await("the first message runs", func() bool { return len(b.all()) == 1 })
	p.pause(1)
	close(goOn)
	b.await("it has failed", func() bool { return len(eventsOf[redeliver.Attempted](b.journal)) == 1 })
	b.start(cfg, handle)
	b.awaitChanges(redeliver.ChangeGroupPaused, 2)
	b.checkNoMoreRuns(1)
	p.resume()
	b.awaitEnds(ids...)
	if got := slices.Compact(b.checkOrder()); !slices.Equal(got, ids) {
		b.Errorf("ran in the order %q", got)
	}
	b.dead(0)
}

func (b *fixture) awaitChanges(change redeliver.Change, n int) {
	b.Helper()
	b.await(string(change), func() bool { return len(b.changesOf(change)) >= n })
}
