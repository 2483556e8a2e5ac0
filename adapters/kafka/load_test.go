package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/observe"
)

// Watch implements [observe.LoadSink].
func (e *events) Watch(_, _ string, load func() observe.Load) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.load = load
	return func() {}
}

func (e *events) lastLoad() observe.Load {
	e.mu.Lock()
	load := e.load
	e.mu.Unlock()
	if load == nil {
		return observe.Load{InFlight: -1}
	}
	return load()
}

// Messages in handlers are in flight. Messages that wait on a level or are read ahead are held.
func TestOnKafkaAMemberReportsItsLoad(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	gate := make(chan struct{})
	running := make(chan struct{}, 5)
	ev, stop := consume(t, p, kafka.Config{MaxInFlight: 2, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour)}},
		func(_ context.Context, rec *sarama.ConsumerMessage) error {
			if string(rec.Value) == "fails" {
				return errDeclined
			}
			running <- struct{}{}
			<-gate
			return nil
		})
	put(t, p.addrs, order(p.topic, "fails"))
	want := func(what string, want observe.Load) {
		t.Helper()
		eventually(t, what, func() bool { return ev.lastLoad() == want })
	}
	want("the failed message is held for an hour", observe.Load{Held: 1})
	recs, ids := orders(p.topic, 5)
	put(t, p.addrs, recs...)
	late := time.After(waitTimeout)
	for range 2 {
		select {
		case <-running:
		case <-late:
			t.Fatalf("not within %s: two handlers run", waitTimeout)
		}
	}
	want("two run, and three are read ahead", observe.Load{InFlight: 2, Held: 4})
	if n := len(running); n > 0 {
		t.Errorf("%d handlers run in addition to the two", n)
	}
	close(gate)
	ev.awaitEnds(t, ids...)
	want("all but one are settled", observe.Load{Held: 1})
	stop()
	want("a member that has left has no load", observe.Load{})
}
