//go:build prove

package amqp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// failingService is a fixture whose handler fails everything until it is fixed.
type failingService struct {
	*fixture
	fixed atomic.Bool
}

func newFailingService(t *testing.T, r *brokers.Rabbit, change func(*fixture)) *failingService {
	t.Helper()
	d := &failingService{}
	d.fixture = newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: redeliver.NoRetries}
		if change != nil {
			change(l)
		}
		l.Cleanup(func() { l.delete(".dlq.state", ".others", ".others.state") })
	})
	return d
}

// makeDeadLetters makes dead letters.
func (d *failingService) makeDeadLetters(all ...string) {
	d.Helper()
	d.consume(func(*message.Message, run) error {
		if d.fixed.Load() {
			return nil
		}
		return errHandler
	})
	d.publishMessages(all...)
	d.awaitEnds(all)
}

// openDead opens the DLQ as a separate process would; kill cuts its connections.
func (d *failingService) openDead() (q deadletter.Queue, kill func()) {
	d.Helper()
	return deadLetters(d.rabbit.URL())(d.T, d.queue, d.queue)
}

// idsInDLQ returns the ids of the messages in the DLQ, in order.
func idsInDLQ(t *testing.T, q deadletter.Queue) (ids []string) {
	t.Helper()
	for _, m := range messagesInDLQ(t, q) {
		ids = append(ids, m.ID)
	}
	return ids
}

// messagesInDLQ returns the messages in the DLQ, in order.
func messagesInDLQ(t *testing.T, q deadletter.Queue) (all []*deadletter.Message) {
	t.Helper()
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// The runner of a replay of 1,000 dead letters (2,000 with REDELIVER_SOAK) is killed several times at random: its
// connections are cut, and nothing is released. Every message is committed, none stays in the DLQ or elsewhere, and
// each kill leaves at most one window of duplicates.
func TestAReplayThatIsKilledAtRandomLosesNothing(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			replayKilled(newFailingService(t, b, nil))
		})
	}
}

func replayKilled(d *failingService) {
	const window, kills = 25, 6 // a kill comes at most 5 windows after the previous one
	n := 1000
	if brokers.Soak() {
		n = 2000
	}
	seed := rand.Uint64()
	d.Logf("report: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := ids(n)
	d.makeDeadLetters(all...)
	d.fixed.Store(true)
	killed := 0
	var task string
	for done := false; !done; {
		q, kill := d.openDead()
		ctx, cancel := context.WithTimeout(d.Context(), maxWait)
		left := 1 + random.IntN(5) // windows until the kill
		pause := time.Duration(random.IntN(20_000)) * time.Microsecond
		progress := func(tk deadletter.Task) {
			if left--; left == 0 && killed < kills && tk.Status == deadletter.StatusRunning {
				killed++
				time.AfterFunc(pause, func() { kill(); cancel() })
			}
		}
		var got deadletter.Task
		var err error
		if task == "" {
			got, err = deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: window, Report: deadletter.Report{Progress: progress}})
		} else {
			got, err = deadletter.Resume(ctx, q, task, deadletter.ResumeOptions{Who: "ann", Report: deadletter.Report{Progress: progress}})
		}
		cancel()
		if got.ID != "" {
			task = got.ID
		}
		done = err == nil && got.Status == deadletter.StatusDone
		if errors.Is(err, deadletter.ErrHeld) {
			<-time.After(50 * time.Millisecond) // until the broker has noticed the previous one's end
		}
		if err := q.Close(); err != nil {
			d.Log(err)
		}
	}
	d.Logf("report: %d kills", killed)
	if killed < kills {
		d.Errorf("only %d of %d kills", killed, kills)
	}
	d.await("commit of all messages", func() bool { return len(d.done) == n })
	q, _ := d.openDead()
	if left := idsInDLQ(d.T, q); len(left) > 0 {
		d.Errorf("%d messages are still in the DLQ: %q", len(left), left[:min(5, len(left))])
	}
	if err := q.Close(); err != nil {
		d.Error(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	twice := 0
	for _, commits := range d.done {
		twice += commits - 1
	}
	d.Logf("report: %d duplicates", twice)
	if twice > killed*window {
		d.Errorf("%d messages were replayed twice by %d kills, want at most %d", twice, killed, killed*window)
	}
}

// The canary of a replay succeeds, and its other messages come back. The replay notices that halfway and stops. It
// loses no message although it read the whole DLQ.
func TestAReplayStopsHalfway(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const n = 400
			d := newFailingService(t, b, nil)
			all := ids(n)
			var spared atomic.Bool
			d.consume(func(*message.Message, run) error {
				if d.fixed.Load() && spared.CompareAndSwap(false, true) { // the canary
					return nil
				}
				return errHandler
			})
			d.publishMessages(all...)
			d.awaitEnds(all)
			d.fixed.Store(true)
			q, _ := d.openDead()
			defer q.Close()
			first, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{
				Who: "ann", Why: "test", Window: 20, Rate: 60, Canary: []int{1}, Watch: time.Second,
				Filter: deadletter.Filter{IDs: all[:200]}, // the others are skipped and stay
			})
			if err != nil || first.Status != deadletter.StatusStopped || first.Counts.Replayed < 10 || first.Counts.Replayed >= 200 {
				t.Fatalf("the replay ended as %s with %+v: %v", first.Status, first.Counts, err)
			}
			d.await("the end of all replayed messages", func() bool {
				runs := 0
				for _, all := range d.runs {
					runs += len(all)
				}
				return runs >= n+int(first.Counts.Replayed) && len(d.done) == 1
			})
			d.awaitReady(d.queue+".dlq", n-1)
			left := idsInDLQ(t, q)
			slices.Sort(left)
			if left = slices.Compact(left); len(left) != n-1 {
				t.Errorf("%d messages are in the DLQ, want all but the first", len(left))
			}
		})
	}
}
