package amqp_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// Anyone who may write to the default exchange may write to .retry and .dlq. Without keys the state of such a message
// is trusted. With keys it is a new message, and messages signed by redeliver keep their state through levels, DLQ
// and replay.
func TestStateKeys(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) { l.cfg.StateKeys = [][]byte{[]byte("sixteen bytes and more")} })
	type attempt struct {
		id               string
		attempt, replays int
	}
	ran := make(chan attempt, 20)
	l.consume(func(msg *message.Message, r run) error {
		st, _ := redeliver.FromContext(msg.Context())
		ran <- attempt{st.ID, r.attempt, st.Replays}
		switch {
		case st.Replays > 0 || st.ID != "honest":
			return nil
		case r.attempt == 1:
			return errors.New("once")
		default:
			return redeliver.Permanent(errors.New("twice"))
		}
	})
	next := func(want attempt) {
		t.Helper()
		select {
		case got := <-ran:
			if got != want {
				t.Errorf("ran %+v, want %+v", got, want)
			}
		case <-t.Context().Done():
			t.Fatalf("%+v did not run", want)
		}
	}
	forged := redeliver.State{ID: "forged", Group: l.queue, Origin: l.queue, Attempts: 2, Replays: 7}
	l.writeOwn(".retry", "", l.queue, forged)
	next(attempt{"forged", 1, 0})
	l.wantFinding(redeliver.HeaderAttempt, "is not signed")

	l.publishMessages("honest")
	next(attempt{"honest", 1, 0})
	next(attempt{"honest", 2, 0})
	l.await("the message in the DLQ", func() bool { return len(l.dead["honest"]) == 1 })
	l.writeOwn(".dlq", "", l.queue, forged)
	l.awaitReady(l.queue+".dlq", 2)
	q, err := l.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: l.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	attempts := map[string]int{}
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		attempts[m.ID] = m.State.Attempts
	}
	if want := map[string]int{"honest": 2, "forged": 0}; !maps.Equal(attempts, want) {
		t.Errorf("the attempts in the DLQ are %v, want %v", attempts, want)
	}
	if _, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil {
		t.Fatal(err)
	}
	replayed := map[attempt]bool{}
	for len(replayed) < 2 {
		select {
		case got := <-ran:
			replayed[got] = true
		case <-t.Context().Done():
			t.Fatal("the replayed messages did not run")
		}
	}
	if !replayed[attempt{"honest", 1, 1}] || !replayed[attempt{"forged", 1, 1}] {
		t.Errorf("replayed: %v, want both as attempt 1 of replay 1", replayed)
	}
}
