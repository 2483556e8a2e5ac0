package amqp_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// Retries and the DLQ work with every kind of queue.
func TestKindsOfQueues(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	for name, args := range map[string]amqp091.Table{
		"quorum":           {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum},
		"classic":          nil,
		"priorities":       {"x-max-priority": int32(10)},
		"length limit":     {"x-max-length": int32(1), "x-overflow": "reject-publish"},
		"own dead letters": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "theirs"},
	} {
		t.Run(name, func(t *testing.T) { worksOn(t, r, args) })
	}
}

func worksOn(t *testing.T, r *brokers.Rabbit, args amqp091.Table) {
	theirs := unique(t) + "-theirs"
	_, dead := args["x-dead-letter-exchange"]
	l := newFixture(t, r, func(l *fixture) {
		if dead {
			args["x-dead-letter-routing-key"] = theirs
		}
		if _, err := l.raw.QueueDeclare(theirs, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		l.cfg.Topology = amqp.ExistingQueue()
		l.cfg.MaxInFlight = 1
		l.declareQueue(args)
	})
	t.Cleanup(func() { _, _ = l.raw.QueueDelete(theirs, false, false, false) })
	running, full := make(chan struct{}), make(chan struct{})
	l.consume(func(msg *message.Message, r run) error {
		switch {
		case msg.UUID == "bad":
			return redeliver.Permanent(errHandler)
		case r.attempt == 1:
			running <- struct{}{}
			<-full
			return errHandler
		case r.attempt < 3:
			return errHandler
		default:
			return nil
		}
	})
	l.publishMessages("m")
	<-running
	l.publishMessages("bad") // a queue with a length limit is full now, and the retry must still work
	if _, limited := args["x-max-length"]; limited {
		var refused error
		for range 3 { // the limit is soft
			refused = errors.Join(refused, l.client.Publisher().Publish(l.queue, message.NewMessage("one too many", nil)))
		}
		if refused == nil || !strings.Contains(refused.Error(), "the broker refused the message (the queue is full") {
			t.Errorf("publishing to the full queue returns: %v", refused)
		}
	}
	go func() { // messages that were not refused fail once too
		for {
			select {
			case <-running:
			case <-t.Context().Done():
				return
			}
		}
	}()
	close(full)
	l.awaitEnds([]string{"m", "bad"})
	l.awaitReady(l.queue+".dlq", 1)
	if n := l.ready(theirs); n > 0 {
		t.Errorf("the user's own dead-letter queue has %d messages, from retries", n)
	}
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := len(l.runs["m"]); got != 3 {
		t.Errorf("%d runs, want 3", got)
	}
	if d := l.dead["bad"]; len(d) != 1 || d[0].State.Reason != redeliver.ReasonPermanent || d[0].Where != l.queue+".dlq" {
		t.Errorf("dead letters: %+v", d)
	}
}

// Subscribe refuses an unsuitable queue.
func TestRefusedQueues(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	refused := func(t *testing.T, l *fixture, wants ...string) {
		t.Helper()
		_, err := l.client.Subscriber().Subscribe(t.Context(), l.queue)
		bad, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok {
			t.Fatalf("Subscribe returns %v, want a ConfigError", err)
		}
		if len(bad.Problems) != 1 {
			t.Errorf("%d problems, want one: %v", len(bad.Problems), err)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not contain %q: %v", want, err)
			}
		}
	}
	t.Run("exclusive", func(t *testing.T) {
		l := newFixture(t, r, nil)
		if _, err := l.raw.QueueDeclare(l.queue, false, false, true, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = l.raw.QueueDelete(l.queue, false, false, false) })
		refused(t, l, "queue "+l.queue, "exclusive to another connection")
	})
	t.Run("declared otherwise", func(t *testing.T) {
		for _, suffix := range []string{".retry", ".dlq", ".retry.suspects", ".retry.200ms"} {
			l := newFixture(t, r, nil)
			if _, err := l.raw.QueueDeclare(l.queue+suffix, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-expires": int32(3_600_000)}); err != nil {
				t.Fatal(err)
			}
			refused(t, l, "queue "+l.queue+suffix, "x-queue-type=quorum", "PRECONDITION_FAILED - inequivalent arg '", "for queue '"+l.queue+suffix+"'")
		}
	})
	t.Run("missing", func(t *testing.T) {
		l := newFixture(t, r, func(l *fixture) { l.cfg.Topology = amqp.ExistingQueue() })
		refused(t, l, "queue "+l.queue, "must exist")
	})
}

// With a second of jitter and 500 failing messages a second, messages that wait for the end of their jitter delay no
// others.
func TestJitterIsInTime(t *testing.T) {
	retryWhileLate(t, time.Second, func() time.Duration { return jitters(t) })
}

// jitters returns the lateness of the latest percent of messages.
func jitters(t *testing.T) time.Duration {
	t.Helper()
	const rate, seconds = 500, 6
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Exponential()}
	})
	l.consume(func(_ *message.Message, r run) error {
		if r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	all := ids(rate * seconds)
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	for left := all; len(left) > 0; left = left[rate/10:] {
		<-tick.C
		l.publishMessages(left[:rate/10]...)
	}
	l.awaitEnds(all)
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	lateness := make([]time.Duration, 0, len(all))
	for _, runs := range l.runs {
		for _, r := range runs {
			if r.attempt > 1 {
				lateness = append(lateness, r.late)
			}
		}
	}
	p := percentiles(lateness)
	t.Logf("report: %d failing messages/s, jitter of 1 s: lateness p50 %v, p99 %v, max %v", rate, p(50), p(99), p(100))
	if n := l.duplicatesLocked(); n > 0 || len(lateness) != len(all) {
		t.Errorf("%d runs too many, %d retries, want %d", n, len(lateness), len(all))
	}
	return p(99)
}
