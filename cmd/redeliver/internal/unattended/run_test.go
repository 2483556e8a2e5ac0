package unattended_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/unattended"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/redelivertest"
)

// shop is a DLQ with messages of two causes. Those of the cause "bank" succeed when bank is true, and so on.
type shop struct {
	t           *testing.T
	orders      *redelivertest.Subscription
	bank, cards bool
	attempts    map[string]int // by body
	tasks       []deadletter.Task
}

func newShop(t *testing.T, b *redelivertest.Broker, bank, cards int) *shop {
	s := &shop{t: t, attempts: make(map[string]int)}
	billing := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries, Outage: redeliver.Outage{Off: true}}})
	s.orders = billing.Handle("orders", func(m *message.Message) error {
		s.attempts[string(m.Payload)]++
		switch {
		case string(m.Payload) == "bank" && !s.bank:
			return errors.New("the bank is down")
		case string(m.Payload) == "card" && !s.cards:
			return errors.New("no such card")
		default:
			return nil
		}
	})
	for range bank {
		b.Publish("orders", message.NewMessage(rand.Text(), []byte("bank")))
	}
	for range cards {
		b.Publish("orders", message.NewMessage(rand.Text(), []byte("card")))
	}
	if n := len(s.orders.DeadLetters()); n != bank+cards {
		t.Fatalf("%d dead letters", n)
	}
	return s
}

func (s *shop) run(o unattended.Options) unattended.Outcome {
	s.t.Helper()
	s.tasks = nil
	o.Replay.Who, o.Report = "job@pod", func(t deadletter.Task) { s.tasks = append(s.tasks, t) }
	outcome, err := unattended.Run(s.t.Context(), s.orders.DeadLetterQueue(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	return outcome
}

// canary is what the example of a CronJob has.
var canary = deadletter.ReplayOptions{Canary: []int{5}, Watch: 10 * time.Second, MaxReplays: 3}

// A cause whose canary fails does not keep the other one waiting, and is tried again in later runs, until its messages were replayed three
// times. Nothing is left to do then.
func TestACauseThatIsNotFixedIsGivenUp(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, 40, 7)
		s.bank = true
		if got := s.run(unattended.Options{Replay: canary}); got != unattended.Stopped || len(s.tasks) != 2 {
			t.Fatalf("outcome %d, tasks %+v", got, s.tasks)
		}
		if done := s.tasks[0]; done.Status != deadletter.StatusDone || done.Counts.Replayed != 40 || done.Why != "unattended" || done.Causes[0].Error != "the bank is down" {
			t.Errorf("of the fixed cause: %+v", done)
		}
		if stopped := s.tasks[1]; stopped.Status != deadletter.StatusStopped || stopped.Counts.Replayed != 5 || stopped.Counts.Returned == 0 {
			t.Errorf("of the other: %+v", stopped)
		}
		runs := 1
		for ; runs < 20; runs++ {
			if s.run(unattended.Options{Replay: canary}) == unattended.Done {
				break
			}
		}
		if len(s.tasks) != 0 || len(s.orders.DeadLetters()) != 7 || s.attempts["card"] != 7+7*3 {
			t.Errorf("after %d runs: tasks %+v, %d dead letters, %d attempts", runs, s.tasks, len(s.orders.DeadLetters()), s.attempts["card"])
		}
		all, err := deadletter.History(t.Context(), s.orders.DeadLetterQueue())
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range all {
			if task.Unfinished() {
				t.Errorf("the task %s is left as %s", task.ID, task.Status)
			}
		}
	})
}

// The end of the window pauses nothing forever: the next run takes the rest.
func TestARunKeepsToItsTime(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, 100, 0)
		s.bank = true
		now := time.Now() // a bubble's time begins at midnight UTC
		window := func(from, to time.Duration) unattended.Window {
			w, err := unattended.ParseWindow(now.Add(from).Format("15:04") + "-" + now.Add(to).Format("15:04"))
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		slow := canary
		slow.Rate = 1
		if got := s.run(unattended.Options{Replay: slow, Between: window(time.Hour, 2*time.Hour)}); got != unattended.Outside || len(s.tasks) != 0 {
			t.Errorf("before its time: outcome %d, %+v", got, s.tasks)
		}
		if got := s.run(unattended.Options{Replay: slow, Between: window(-time.Hour, time.Minute)}); got != unattended.Partly || len(s.tasks) != 1 {
			t.Fatalf("outcome %d, %+v", got, s.tasks)
		}
		left := len(s.orders.DeadLetters())
		if left == 0 || left == 100 || time.Since(now) > 2*time.Minute {
			t.Errorf("%d are left after %s", left, time.Since(now))
		}
		if task, err := deadletter.Lookup(t.Context(), s.orders.DeadLetterQueue(), s.tasks[0].ID); err != nil || task.Status != deadletter.StatusCancelled {
			t.Errorf("the task is %+v: %v", task, err)
		}
		if got := s.run(unattended.Options{Replay: canary}); got != unattended.Done || len(s.orders.DeadLetters()) != 0 || s.attempts["bank"] != 200 {
			t.Errorf("outcome %d, %d are left, %d attempts", got, len(s.orders.DeadLetters()), s.attempts["bank"])
		}
	})
}

// A task of a killed run is ended, and a person's task is left alone.
func TestARunEndsTheTasksOfEarlierRuns(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, 60, 0)
		q := s.orders.DeadLetterQueue()
		var ids []string
		for _, why := range []string{"unattended: nightly", "unattended work of mine"} {
			ctx, stop := context.WithCancel(t.Context())
			task, _ := deadletter.Replay(ctx, q, deadletter.ReplayOptions{Who: "ann", Why: why, Rate: 1, Report: deadletter.Report{Progress: func(now deadletter.Task) {
				if now.Counts.Replayed > 0 {
					stop()
				}
			}}})
			stop()
			ids = append(ids, task.ID)
		}
		s.bank = true
		withNote := canary
		withNote.Why = "nightly"
		if got := s.run(unattended.Options{Replay: withNote}); got != unattended.Done || s.tasks[0].Why != "unattended: nightly" || len(s.orders.DeadLetters()) != 0 {
			t.Errorf("outcome %d, %+v", got, s.tasks)
		}
		for i, want := range []deadletter.Status{deadletter.StatusCancelled, deadletter.StatusPaused} {
			if task, err := deadletter.Lookup(t.Context(), q, ids[i]); err != nil || task.Status != want {
				t.Errorf("task %d is %s, want %s: %v", i, task.Status, want, err)
			}
		}
	})
}

// While another runner has the DLQ, nothing is done.
func TestARunGivesWayToAPerson(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		s := newShop(t, b, 3, 0)
		q := s.orders.DeadLetterQueue()
		claim, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "x"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = unattended.Run(t.Context(), q, unattended.Options{Replay: deadletter.ReplayOptions{Who: "job"}, Report: func(deadletter.Task) { t.Error("a task") }})
		if !errors.Is(err, deadletter.ErrHeld) || !strings.Contains(err.Error(), "ann") {
			t.Errorf("%v", err)
		}
		if err := claim.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
