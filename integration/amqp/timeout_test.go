//go:build prove

package amqp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// consumerTimeout is the broker's consumer_timeout in these tests.
const consumerTimeout = 20 * time.Second

func newTimeoutFixture(t *testing.T, r *brokers.Rabbit, change func(*fixture)) *fixture {
	t.Helper()
	return newFixture(t, r, func(l *fixture) {
		l.cfg.ConsumerTimeout = consumerTimeout
		l.cfg.Policy.Timeout = consumerTimeout
		l.cfg.MaxInFlight, l.cfg.Prefetch = 1, 2
		change(l)
	})
}

// setConsumerTimeout makes a broker close channels that keep a message too long, until the test ends. A channel has
// the setting from when it was opened.
func setConsumerTimeout(t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	set := func(what, value string) {
		if _, err := r.Eval(context.Background(), fmt.Sprintf("application:set_env(rabbit, %s, %s).", what, value)); err != nil {
			t.Fatal(err)
		}
	}
	was, err := r.Eval(t.Context(), "{ok, T} = application:get_env(rabbit, consumer_timeout), T.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set("consumer_timeout", was) })
	set("consumer_timeout", fmt.Sprint(consumerTimeout.Milliseconds()))
	set("channel_tick_interval", "1000") // the default is once a minute
}

// staysBehindSlowHandler runs handlers one after another, which take longer than the broker waits. The messages behind
// a running one are returned in time, and come again.
func staysBehindSlowHandler(t *testing.T, r *brokers.Rabbit) {
	l := newTimeoutFixture(t, r, func(*fixture) {})
	l.declared()
	all := ids(3)
	l.publishMessages(all...)
	l.consume(func(*message.Message, run) error {
		waitFor(consumerTimeout * 3 / 5)
		return nil
	})
	l.awaitEnds(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for id, runs := range l.runs {
		if len(runs) != 1 || runs[0].attempt != 1 {
			t.Errorf("%s: runs are %+v, want one, attempt 1", id, runs)
		}
		if runs[0].redelivered {
			again++
		}
	}
	if again == 0 {
		t.Error("no message was returned")
	}
	l.checkUndisturbedLocked()
}

// checkUndisturbedLocked fails the test if a channel ended or a message became a suspect.
func (l *fixture) checkUndisturbedLocked() {
	l.Helper()
	if c := l.changesLocked(); len(c) != 1 || c[0] != "consuming" {
		l.Errorf("changes are %v, want only consuming", c)
	}
	for _, e := range l.events {
		if h, ok := e.(redeliver.Hopped); ok && h.To == l.queue+".retry.suspects" {
			l.Errorf("%s became a suspect", h.State.ID)
		}
	}
}

// heldLong has a wait below the smallest level that exceeds the broker's timeout.
func heldLong(t *testing.T, r *brokers.Rabbit) {
	l := newTimeoutFixture(t, r, func(l *fixture) {
		l.cfg.Policy.Levels = []time.Duration{time.Minute}
		l.cfg.Policy.Backoff = redeliver.Fixed(consumerTimeout + 4*time.Second)
	})
	l.consume(func(_ *message.Message, r run) error {
		if r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	retryWhileLate(t, 2*time.Second, func() time.Duration {
		id := rand.Text()
		l.publishMessages(id)
		l.awaitEnds([]string{id})
		l.checkNothingEarly()
		l.mu.Lock()
		defer l.mu.Unlock()
		if c := l.changesLocked(); len(c) != 1 {
			t.Errorf("changes are %v, want only consuming", c)
		}
		runs := l.runs[id]
		if len(runs) != 2 {
			t.Fatalf("runs are %+v, want two", runs)
		}
		return runs[1].late
	})
}

// runsLonger has a handler that exceeds the timeout. It loses its channel, the message comes back, and other messages
// are not lost.
func runsLonger(t *testing.T, r *brokers.Rabbit) {
	l := newTimeoutFixture(t, r, func(l *fixture) {
		l.cfg.MaxInFlight = 2
		l.cfg.Policy.Timeout, l.cfg.ConsumerTimeout = time.Minute, time.Minute // unlike its broker's
	})
	l.declared()
	lost := make(chan struct{})
	l.consume(func(msg *message.Message, r run) error {
		if msg.UUID == "slow" && !r.redelivered {
			<-msg.Context().Done()
			close(lost)
			return msg.Context().Err()
		}
		return nil
	})
	all := append(ids(20), "slow")
	l.publishMessages("slow")
	l.publishMessages(all[:20]...)
	<-lost
	l.awaitEnds(all)
	l.awaitChange("consuming", 2)
	l.mu.Lock()
	defer l.mu.Unlock()
	if runs := l.runs["slow"]; len(runs) != 2 || runs[0].attempt != 1 || runs[1].attempt != 1 {
		t.Errorf("runs are %+v, want two, both attempt 1: a message that the broker takes back has not failed", runs)
	}
	if n := l.duplicatesLocked(); n != 1 {
		t.Errorf("%d runs too many, want the one of the slow message", n)
	}
	if len(l.dead) > 0 || l.countLocked("disconnected") != 1 {
		t.Errorf("dead-lettered %v, %d times disconnected", l.deadIDsLocked(), l.countLocked("disconnected"))
	}
}
