//go:build prove

package kafka_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The runner of a replay of 2,000 dead letters is killed repeatedly at random: its connections are cut, and its lease
// is not released. Every message is committed in the end, and each kill causes at most a window of duplicates.
func TestOnKafkaAReplayKilledAtRandomLosesNothing(t *testing.T) {
	t.Parallel()
	const n, window, kills = 2000, 25, 6
	seed := rand.Uint64()
	t.Logf("report: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := onKafka(t)
	addrs := p.addrs
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: p.group, Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
	var fixed atomic.Bool
	route(t, c, p.topic, func(*message.Message) error {
		if fixed.Load() {
			return nil
		}
		return errDeclined
	})
	recs, ids := orders(p.topic, n)
	ev.awaitJoined(t, 1)
	write(t, addrs, recs...)
	ev.awaitEnds(t, ids...)
	fixed.Store(true)

	started, killed := kafkatest.DeadLetters(addrs, time.Second), 0
	ended := 0 // killed in the middle, or without a broker for longer than the lease
	var task string
	for done := false; !done; {
		q, kill := started(t, p.topic, p.group)
		ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
		left := 1 + random.IntN(5) // windows until the kill
		pause := time.Duration(random.IntN(5000)) * time.Microsecond
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
		switch {
		case errors.Is(err, deadletter.ErrHeld):
			<-time.After(50 * time.Millisecond) // until the last claim expires
		case !done:
			ended++
		}
		if err := q.Close(); err != nil {
			t.Log(err)
		}
	}
	t.Logf("report: %d kills, %d runners ended in the middle", killed, ended)
	if killed < kills {
		t.Errorf("only %d of %d kills", killed, kills)
	}
	replayed := func() map[string]int {
		runs := make(map[string]int)
		for _, e := range all[redeliver.Committed](ev) {
			if e.State.Replays > 0 {
				runs[e.State.ID]++
			}
		}
		return runs
	}
	eventually(t, "all are committed", func() bool { return len(replayed()) == n })
	q, _ := started(t, p.topic, p.group)
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s is still in the DLQ", m.ID)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	twice := 0
	for _, runs := range replayed() {
		twice += runs - 1
	}
	t.Logf("report: %d duplicates", twice)
	if twice > ended*window {
		t.Errorf("%d messages were replayed twice by %d runners that ended in the middle, want at most %d", twice, ended, ended*window)
	}
}

// A runner is killed between any two calls of its driver.
func TestOnKafkaAKilledRunnerLosesNothing(t *testing.T) {
	t.Parallel()
	addrs := onKafka(t).addrs
	adaptertest.RunDeadLetterKills(t, kafkatest.New(t, addrs, nil), kafkatest.DeadLetters(addrs, 2*time.Second))
}
