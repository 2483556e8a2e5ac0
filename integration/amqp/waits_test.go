//go:build prove

package amqp_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/limits"
)

// onBoth runs a test on the oldest and the newest RabbitMQ.
func onBoth(t *testing.T, test func(*testing.T, *brokers.Rabbit)) {
	t.Helper()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			test(t, r)
		})
	}
}

// failsOnce is a handler whose first attempts fail.
func failsOnce(_ *message.Message, r run) error {
	if r.attempt == 1 {
		return errHandler
	}
	return nil
}

// close closes the fixture's client; open then opens another one, as in another process.
func (l *fixture) close() {
	l.Helper()
	if err := l.client.Close(context.Background()); err != nil {
		l.Fatal(err)
	}
}

// planned waits until n messages wait for their retry, and returns their sorted due times.
func (l *fixture) planned(n int) []time.Time {
	l.Helper()
	waiting := make(map[string]time.Time)
	l.await("retries", func() bool {
		for _, e := range l.events {
			if e, ok := e.(redeliver.RetryScheduled); ok {
				waiting[e.State.ID] = e.State.Due
			}
		}
		return len(waiting) >= n
	})
	return slices.SortedFunc(maps.Values(waiting), time.Time.Compare)
}

// deliverAndDie repeatedly receives the messages of a queue on a connection that dies. A broker with a delivery limit
// then moves them away.
func (l *fixture) deliverAndDie(queue string, n, times int) {
	l.Helper()
	for range times {
		l.redial()
		for range n {
			if _, _, err := l.raw.Get(queue, false); err != nil {
				l.Fatal(err)
			}
		}
		if err := l.raw.Close(); err != nil {
			l.Fatal(err)
		}
	}
	l.redial()
}

// Readers of waiting messages restart, and each time the broker counts a delivery. RabbitMQ 4 allows 20. No message
// becomes a suspect or is early. Once those that had waited through two restarts ran one by one, and on RabbitMQ 4 some
// ran early.
func TestRestartsWhileMessagesWait(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *brokers.Rabbit) {
		for name, c := range map[string]restartTest{
			"to the end":        {3 * time.Second, 5, true},
			"until long before": {5 * time.Second, 5, false},
			"25 times":          {8 * time.Second, 25, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for !c.try(t, r) { // the machine was too slow: messages that were returned after they were due count as deliveries
					t.Logf("report: %d restarts took longer than %s, once more with twice that", c.times, c.level)
					if c.level *= 2; c.level > 5*time.Minute {
						t.Fatalf("%d restarts take longer than messages wait", c.times)
					}
				}
			})
		}
	})
}

// Subscribers with the default prefetch restart one after another beside a backlog of due retries: the next one begins
// before the previous one ends. None holds more messages than its slots need, and the returned ones become no suspects.
func TestRollingRestartsWithABacklogOfRetries(t *testing.T) {
	t.Parallel()
	onBoth(t, rollingRestarts)
}

func rollingRestarts(t *testing.T, r *brokers.Rabbit) {
	const restarts, each = 20, 15
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy, l.cfg.MaxRetriesInFlight = redeliver.Policy{}, 5
	})
	l.declared()
	handle := func(_ *message.Message, r run) error {
		if r.attempt == 1 {
			return errHandler
		}
		<-time.After(20 * time.Millisecond)
		return nil
	}
	all := ids(2 * restarts * each)
	l.publishMessages(all...)
	l.consume(handle)
	due := l.planned(len(all))
	for i := range restarts {
		l.await("progress", func() bool { return len(l.done) >= min(each*(i+1), len(all)) })
		if i == 0 { // all retries wait until they are due
			l.close()
			<-time.After(time.Until(due[len(due)-1]))
		}
		previous := l.client
		l.open()
		l.consume(handle)
		if err := previous.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitEnds(all)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkNoSuspectsLocked()
}

// restartTest restarts subscribers while messages wait on a level.
type restartTest struct {
	level time.Duration
	times int
	due   bool // the messages are due when they are read again
}

// try returns false if the restarts took longer than the wait.
func (c restartTest) try(t *testing.T, r *brokers.Rabbit) bool {
	t.Helper()
	l := newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(c.level), Levels: []time.Duration{c.level, c.level + time.Second}}
	})
	l.consume(failsOnce)
	all := ids(20)
	l.publishMessages(all...)
	due := l.planned(len(all))
	l.close()
	waits := fmt.Sprintf("%s.retry.%s", l.queue, delayqueue.LevelName(c.level))
	last := due[0] // by then the wait is over
	if !c.due {
		last = last.Add(-c.level / 3) // long before
	}
	over := func() bool { return !time.Now().Before(last) }
	for l.ready(waits) != len(all) && !over() {
		waitFor(20 * time.Millisecond) // until the broker has the client's messages back
	}
	if over() {
		if c.level > 30*time.Second {
			l.Fatalf("queue %s has %d ready messages, want %d", waits, l.ready(waits), len(all))
		}
		return false
	}
	if l.deliverAndDie(waits, len(all), c.times); over() {
		return false
	}
	if c.due {
		<-time.After(time.Until(due[len(due)-1]))
	}
	l.open()
	l.consume(failsOnce)
	l.awaitEnds(all)
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range all {
		if runs := l.runs[id]; len(runs) != 2 || runs[1].attempt != 2 {
			t.Errorf("%s: runs are %+v, want two", id, runs)
		}
	}
	l.checkNoSuspectsLocked()
	return true
}

// checkNoSuspectsLocked fails the test if a message became a suspect.
func (l *fixture) checkNoSuspectsLocked() {
	l.Helper()
	for _, e := range l.events {
		if h, ok := e.(redeliver.Hopped); ok && strings.HasSuffix(h.To, ".suspects") {
			l.Errorf("%s became a suspect", h.State.ID)
		}
	}
}

// A subscriber closes while a handler runs long. Its waiting and prefetched messages go to other processes at once.
// They once stayed until the handler ended.
func TestClosingReturnsMessagesAtOnce(t *testing.T) {
	t.Parallel()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = steps(3, time.Second)
		l.cfg.DrainTimeout = 10 * time.Minute
		l.cfg.MaxInFlight, l.cfg.Prefetch, l.cfg.MaxRetriesInFlight = 1, 2, 10
	})
	slow := make(chan struct{})
	handler := func(msg *message.Message, r run) error {
		switch {
		case msg.UUID == "retried" && r.attempt == 2, msg.UUID == "new":
			<-slow
			return msg.Context().Err()
		case r.attempt == 1 && msg.UUID != "prefetched":
			return errHandler
		default:
			return nil
		}
	}
	l.consume(handler)
	l.publishMessages("retried")
	l.await("second run", func() bool { return len(l.runs["retried"]) == 2 })
	l.publishMessages("waits", "new", "prefetched")
	l.await("run", func() bool { return len(l.runs["new"]) == 1 })
	l.planned(2)
	first := l.client
	l.open()
	closed := make(chan error, 1)
	go func() { closed <- first.Close(context.Background()) }()
	t.Cleanup(func() {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { close(slow) })
	l.consume(handler)
	l.awaitEnds([]string{"waits", "prefetched"})
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) != 2 || l.duplicatesLocked() > 0 {
		t.Errorf("%v were committed, and %d ran twice", l.done, l.duplicatesLocked())
	}
}

// One level has more messages than the prefetch: some leave it for a shorter level, others are due at its end. No
// message waits for an earlier one that waits longer. Messages that moved on once stayed in the prefetch for a whole
// level, counted from their delivery.
func TestMixedWaits(t *testing.T) {
	t.Parallel()
	const level, longer = 6 * time.Second, 11500 * time.Millisecond
	// They were once late by at least that.
	retryWhileLate(t, longer-level-time.Second, func() time.Duration { return mixedWaits(t, level, longer) })
}

// mixedWaits returns the largest lateness of the messages that are due at the level's end.
func mixedWaits(t *testing.T, level, longer time.Duration) (latest time.Duration) {
	t.Helper()
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(level), Levels: []time.Duration{2 * time.Second, level}}
		l.cfg.MaxRetriesInFlight, l.cfg.RetryPrefetch = 4, 4
	})
	l.consume(func(msg *message.Message, r run) error {
		if r.attempt > 1 {
			return nil
		}
		if strings.HasPrefix(msg.UUID, "longer") {
			return redeliver.RetryAfter(errHandler, longer)
		}
		return errHandler
	})
	var all, usual []string
	for i := range 16 {
		all = append(all, fmt.Sprintf("longer-%d", i))
		usual = append(usual, fmt.Sprintf("usual-%d", i))
	}
	l.publishMessages(all...)
	l.planned(len(all))
	l.publishMessages(usual...)
	l.awaitEnds(append(all, usual...))
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range usual {
		if runs := l.runs[id]; len(runs) != 2 {
			t.Errorf("%s: runs are %+v, want two", id, runs)
		} else {
			latest = max(latest, runs[1].late)
		}
	}
	return latest
}

// If a writer's clock is ahead, its retries are late by that, not early.
func TestAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	retryOfAnotherClock(t, 5*time.Second)
}

// If a writer's clock is behind, its retries are early by that at most, and run once.
func TestAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	retryOfAnotherClock(t, -time.Second) // less than the level, so that there is a time before which it must not run
}

func retryOfAnotherClock(t *testing.T, ahead time.Duration) {
	const level = 2 * time.Second
	l := newFixture(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(level), Levels: []time.Duration{level, 3 * time.Second}}
	})
	l.declared()
	l.consume(func(*message.Message, run) error { return nil })
	l.awaitChange("consuming", 1)
	now := time.Now().UTC()
	st := redeliver.State{
		ID: "m", Group: l.queue, Origin: l.queue, Attempts: 1, Due: limits.CeilMilli(now.Add(level + ahead)),
		FirstFailed: now.Add(ahead), LastFailed: now.Add(ahead), Policy: delayqueue.Fingerprint(l.cfg.Policy),
	}
	l.writeOwn(".retry.2s", "", l.queue, st)
	l.awaitEnds([]string{"m"})
	if waited := time.Since(now); waited < level+ahead {
		t.Errorf("it ran after %v, want %v at least", waited, level+ahead)
	}
	l.checkNothingEarly()
	l.mu.Lock()
	defer l.mu.Unlock()
	if runs := l.runs["m"]; len(runs) != 1 || runs[0].attempt != 2 {
		t.Errorf("runs are %+v, want attempt 2", runs)
	}
	l.checkNoSuspectsLocked()
}
