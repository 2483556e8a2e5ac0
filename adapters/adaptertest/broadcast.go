package adaptertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// broadcasts: consumers without a group, of which every process gets every message.
func broadcasts() []test {
	return []test{
		{name: "ABroadcastConsumerReportsAFailureAndGoesOn", needs: "Broadcast ManyGroups", groups: 2, body: broadcastFails},
		{name: "RetryIsRefusedAroundABroadcastConsumer", needs: "Broadcast ManyGroups", groups: 2, body: broadcastRetry},
	}
}

// listen runs a handler over a broadcast consumer of a process of its own, and returns what
// happens there.
func (b *bench) listen(cfg Config, h handler, mws ...message.HandlerMiddleware) *journal {
	b.Helper()
	p := &process{b: b, journal: newJournal(), handler: h, done: make(chan struct{})}
	sub, err := b.h.OpenBroadcast(b.T, b.config("", cfg, p))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := sub.Close(); err != nil {
			b.Errorf("closing the broadcast consumer: %v", err)
		}
	})
	p.serve(sub, p.handle, mws...)
	return p.journal
}

// unmoved checks that nothing of a process was written anywhere.
func (b *bench) unmoved(j *journal) {
	b.Helper()
	retried, postponed, dead := heard[redeliver.RetryScheduled](j), heard[redeliver.MessagePostponed](j), heard[redeliver.DeadLettered](j)
	if len(retried)+len(postponed)+len(dead) > 0 {
		b.Errorf("messages of a broadcast consumer went elsewhere: %+v, %+v, %+v", retried, postponed, dead)
	}
}

// broadcastFails: whatever becomes of a message, in each process, it is told of once, it does
// not run again, and those behind it run, also those of its key.
func broadcastFails(b *bench) {
	p := redeliver.Policy{Timeout: 2 * time.Second} // the hanging one alone waits for it
	h := func(a *attempt) error {
		switch a.State.ID {
		case "fails":
			return errDeclined
		case "permanent":
			return redeliver.Permanent(errDeclined)
		case "later":
			return redeliver.RetryAfter(errDeclined, time.Millisecond)
		case "panics":
			panic("index out of range")
		case "hangs":
			b.awaitContext(a)
			if cause := context.Cause(a.Msg.Context()); !errors.Is(cause, redeliver.ErrTimeout) {
				b.Errorf("the context of an attempt ended with %v, want a timeout", cause)
			}
			<-b.Context().Done() // the test's: it goes on whatever it is told
		}
		return nil
	}
	var processes []*journal
	for range 2 {
		processes = append(processes, b.listen(Config{Policy: p}, h, middleware.Retry(middleware.AllowBroadcast)))
	}
	want := map[string]redeliver.Reason{
		"fails": redeliver.ReasonExhausted, "permanent": redeliver.ReasonPermanent, "later": redeliver.ReasonExhausted,
		"panics": redeliver.ReasonPanic, "hangs": redeliver.ReasonTimeout, "no message": redeliver.ReasonUndecodable,
	}
	msgs := named("before", "fails", "permanent", "later", "panics", "hangs")
	msgs = append(msgs, Message{ID: "no message", Body: []byte(Undecodable)})
	b.put(b.underOneKey(append(msgs, named("behind")...))...)
	for _, j := range processes {
		j.await(b.T, "each message is committed or reported", func() bool {
			committed, _ := j.ended()
			return committed["before"]+committed["behind"] >= 2 && len(heard[redeliver.BroadcastFailed](j)) >= len(want)
		})
		got := make(map[string]redeliver.Reason)
		failed := heard[redeliver.BroadcastFailed](j)
		for _, e := range failed {
			got[e.State.ID] = e.State.Reason
			if e.Err == nil || e.State.Origin != b.origin || e.State.Group != "" {
				b.Errorf("reported %+v because of %v, want it of %s, of no group, and why", e.State, e.Err, b.origin)
			}
		}
		if len(failed) != len(want) || !maps.Equal(got, want) {
			b.Errorf("%d were reported, as %v, want %v", len(failed), got, want)
		}
		for _, id := range []string{"before", "fails", "permanent", "later", "panics", "hangs", "behind"} {
			if n := numbers(j.ran(id)); !slices.Equal(n, upTo(1)) {
				b.Errorf("%s ran as attempts %v, want one", id, n)
			}
		}
		b.unmoved(j)
	}
}

// broadcastRetry: there is no group that could get a message back, so Retry runs nothing
// there and says so; asked for by name, it has the tries made that the process can make.
func broadcastRetry(b *bench) {
	refused := b.listen(Config{}, func(a *attempt) error {
		b.Errorf("the handler got %s", a.UUID)
		return nil
	}, middleware.Retry())
	allowed := b.listen(Config{Policy: redeliver.Policy{Immediate: 2}}, declineFirst(2), middleware.Retry(middleware.AllowBroadcast))
	b.put(named("a", "b")...)
	refused.await(b.T, "both messages are refused", func() bool { return len(heard[redeliver.BroadcastFailed](refused)) >= 2 })
	for _, e := range heard[redeliver.BroadcastFailed](refused) {
		if !errors.Is(e.Err, middleware.ErrBroadcast) {
			b.Errorf("%s was refused with %v", e.State.ID, e.Err)
		}
	}
	allowed.await(b.T, "both messages are committed", func() bool {
		committed, _ := allowed.ended()
		return committed["a"] > 0 && committed["b"] > 0
	})
	for _, id := range []string{"a", "b"} {
		if n := numbers(allowed.ran(id)); !slices.Equal(n, upTo(3)) {
			b.Errorf("%s ran as attempts %v, want three", id, n)
		}
	}
	b.unmoved(refused)
	b.unmoved(allowed)
}
