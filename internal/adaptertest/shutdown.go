package adaptertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// shutdowns tests that a shutdown is bounded, and that messages that have not ended by then stay unacked (promise 6).
func shutdowns() []test {
	return []test{
		{name: "HandlersMayFinishWhenTheServiceCloses", body: mayFinish},
		{name: "AnAttemptCutShortByACloseIsNotCounted", needs: "KeepsAttempts", body: cutShort},
		{name: "CloseIsBoundedAndIdempotent", needs: "KeepsAttempts", router: true, body: closeIsBounded},
		{name: "WaitingMessagesComeBackOnceAfterAClose", needs: "KeepsAttempts", body: closedWhileWaiting},
		{name: "ARetryDueWhileNothingRunsComesBackOnce", needs: "KeepsAttempts", body: dueWhileAway},
		{name: "AProcessThatLeavesItsGroupLosesNothing", needs: "KeepsAttempts", body: leaves},
		{name: "ClosingASubscriberOrPublisherKeepsTheServiceOpen", router: true, body: keepsServiceOpen},
	}
}

func mayFinish(b *fixture) {
	n := 5
	if !b.h.Features.NoHeadOfLineBlocking {
		n = 1
	}
	msgs, ids := numberedMessages(n)
	p := b.start(Config{Policy: quickPolicy(3), DrainTimeout: Timeout / 3}, func(a *attempt) error {
		work := time.NewTimer(300 * time.Millisecond)
		defer work.Stop()
		select {
		case <-work.C:
			return nil
		case <-a.Ctx.Done():
			return context.Cause(a.Ctx)
		}
	})
	b.put(msgs...)
	b.await("all handlers run", func() bool { return len(b.all()) == n })
	b.closeFinishes(p, ids...)
}

// closeFinishes closes a process with running handlers, and checks that it has committed their messages.
func (b *fixture) closeFinishes(p *process, ids ...string) {
	b.Helper()
	p.close()
	committed, _ := b.ended()
	b.start(Config{Policy: quickPolicy(1)}, succeed)
	b.put(namedMessages("last")...)
	b.awaitEnds(append(ids, "last")...)
	for _, id := range ids {
		if committed[id] != 1 {
			b.Errorf("%s was committed %d times when the service was closed", id, committed[id])
		}
		b.wantRuns(id, 1)
	}
}

func cutShort(b *fixture) {
	// Acks of later messages must not cover an unfinished one.
	behind, ids := numberedMessages(10)
	if !b.h.Features.NoHeadOfLineBlocking {
		behind, ids = nil, nil
	}
	p := b.start(Config{Policy: quickPolicy(2), DrainTimeout: 200 * time.Millisecond}, func(a *attempt) error {
		switch {
		case slices.Contains(ids, a.State.ID):
			return nil
		case a.State.ID == "second" && a.State.Attempts == 0:
			return errHandler
		}
		b.hold(a.Ctx.Done())
		return errors.New("cut short")
	})
	b.put(namedMessages("second")...)
	b.await("the second attempt is under way", func() bool { return len(b.ran("second")) == 2 })
	b.put(append(namedMessages("first"), behind...)...)
	b.awaitEnds(ids...)
	b.await("both are under way", func() bool { return len(b.ran("first")) == 1 && len(b.ran("second")) == 2 })
	p.close()
	b.start(Config{Policy: quickPolicy(2)}, succeed)
	b.awaitEnds("first", "second")
	for id, want := range map[string][]int{"first": {1, 1}, "second": {1, 2, 2}} {
		if got := numbers(b.ran(id)); !slices.Equal(got, want) {
			b.Fatalf("%s ran as attempts %v, want %v", id, got, want)
		}
		for _, a := range b.ran(id) {
			if a.State.Error == "cut short" {
				b.Errorf("attempt %d of %s has the state of a failure", a.State.Attempt(), id)
			}
		}
	}
	for _, a := range eventsOf[redeliver.Abandoned](b.journal) {
		if a.State.ID != "first" && a.State.ID != "second" {
			b.Errorf("abandoned: %+v", a)
		}
	}
	b.dead(0)
}

func closeIsBounded(b *fixture) {
	const drain = 200 * time.Millisecond
	svc := b.open(b.group, Config{Policy: quickPolicy(1), DrainTimeout: drain}, redeliver.SinkFunc(func(redeliver.Event) {}))
	out, err := svc.Subscriber().Subscribe(context.Background(), b.origin)
	if err != nil {
		b.Fatal(err)
	}
	b.put(namedMessages("a")...)
	msg := b.receive(out)
	for i := range 2 { // the message is never answered
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		began := time.Now()
		if err := svc.Close(ctx); err != nil {
			b.Errorf("close %d: %v", i+1, err)
		}
		if took := time.Since(began); took > Timeout/2 {
			b.Errorf("close %d took %s with a drain timeout of %s", i+1, took, drain)
		}
		cancel()
	}
	if msg.Context().Err() == nil {
		b.Errorf("the context of an abandoned message has not ended")
	}
	select {
	case _, open := <-out:
		if open {
			b.Errorf("a message came after the close")
		}
	default:
		b.Errorf("the subscription continues after the close")
	}
	if _, err := svc.Subscriber().Subscribe(context.Background(), b.origin); err == nil {
		b.Errorf("a closed service subscribes")
	}
	if err := svc.Publisher().Publish(b.origin, message.NewMessage("late", nil)); err == nil {
		b.Errorf("a closed service publishes")
	}
	msg.Ack() // too late
	b.start(Config{Policy: quickPolicy(1)}, succeed)
	b.awaitEnds("a")
	b.wantRuns("a", 1)
}

// receive receives one message from a subscription.
func (b *fixture) receive(out <-chan *message.Message) *message.Message {
	b.Helper()
	deadline := time.NewTimer(Timeout)
	defer deadline.Stop()
	select {
	case msg, ok := <-out:
		if !ok {
			b.Fatal("the subscription has ended")
		}
		return msg
	case <-deadline.C:
		b.Fatalf("no message within %s", Timeout)
	}
	return nil
}

// leaves ends one of two processes of a group while messages run and wait.
func leaves(b *fixture) {
	const n = 60
	msgs, ids := numberedMessages(n)
	p := quickPolicy(3)
	p.Backoff = redeliver.Fixed(300 * time.Millisecond)
	one := b.start(Config{Policy: p, MaxInFlight: 5}, failFirst(1))
	b.start(Config{Policy: p, MaxInFlight: 5}, failFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n/3)
	one.close()
	b.awaitEnds(ids...)
	b.checkNotEarly(constantDelay(300*time.Millisecond), ids...)
	_, dead := b.ended()
	for _, id := range ids {
		if ns := numbers(b.ran(id)); !slices.Contains(ns, 2) || slices.Max(ns) > 2 || dead[id] > 0 {
			b.Errorf("%s ran as attempts %v, want 1 and 2", id, ns)
		}
	}
	b.dead(0)
}

// closedWhileWaiting closes a process while some messages wait on a level and some are held for their jitter.
func closedWhileWaiting(b *fixture) {
	const n, base = 40, 800 * time.Millisecond
	msgs, ids := numberedMessages(n)
	p := redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.ExponentialBackoff{Base: base, Max: base},
		Levels: []time.Duration{200 * time.Millisecond, base},
	}
	one := b.start(Config{Policy: p}, failFirst(1))
	b.put(msgs...)
	awaitEvents[redeliver.RetryScheduled](b, n)
	one.close()
	closed := time.Now()
	b.start(Config{Policy: p}, succeed)
	b.checkCameBackOnce(ids, base)
	for _, a := range b.all() {
		if a.Process == one && a.Began.After(closed) {
			b.Errorf("attempt %d of %s began after the close", a.State.Attempt(), a.State.ID)
		}
	}
}

// dueWhileAway runs no process when the retries are due.
func dueWhileAway(b *fixture) {
	const n, delay = 40, 500 * time.Millisecond
	msgs, ids := numberedMessages(n)
	p := redeliver.Policy{
		MaxRetries: 1, Backoff: redeliver.Fixed(delay),
		Levels: []time.Duration{100 * time.Millisecond, 400 * time.Millisecond},
	}
	one := b.start(Config{Policy: p}, failFirst(1))
	b.put(msgs...)
	scheduled := awaitEvents[redeliver.RetryScheduled](b, n)
	one.close()
	last := slices.MaxFunc(scheduled, func(x, y redeliver.RetryScheduled) int { return x.State.Due.Compare(y.State.Due) })
	away := time.NewTimer(time.Until(last.State.Due.Add(delay))) // only the clock matters here
	<-away.C
	b.start(Config{Policy: p}, succeed)
	b.checkCameBackOnce(ids, delay)
}

// checkCameBackOnce waits until messages that failed once are committed, and checks
// that each ran once more.
func (b *fixture) checkCameBackOnce(ids []string, delay time.Duration) {
	b.Helper()
	b.awaitEnds(ids...)
	b.wantEach(2, ids...)
	b.checkNotEarly(constantDelay(delay), ids...)
	b.checkDueTimes(ids...)
	b.dead(0)
}

// keepsServiceOpen tests that a Router may close its publisher and subscriber while its handlers run.
func keepsServiceOpen(b *fixture) {
	p := b.start(Config{Policy: quickPolicy(1)}, failHandler)
	pub := p.svc.Publisher()
	for range 2 {
		if err := errors.Join(pub.Close(), p.svc.Subscriber().Close()); err != nil {
			b.Error(err)
		}
	}
	if err := pub.Publish(b.origin, message.NewMessage("published", []byte("v"))); err != nil {
		b.Errorf("a message published at the end is lost: %v", err)
	}
	b.put(namedMessages("a")...)
	b.awaitEnds("a", "published")
	b.wantRuns("a", 2)
	b.dead(2)
}
