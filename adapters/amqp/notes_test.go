package amqp

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A suspect begins only when its lane has confirmed its turn. It once began earlier, and the decision about it came
// while it ran.
func TestSuspectBeginsWhenItsLaneIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		d := m.Record
		d.writes, d.crashes = 1, s.r.layout.Policy.MaxCrashes // while it waits for its turn
		d.hasTurn.Store(true)
		if s.Begin(m) != engine.NotYet {
			t.Error("it begins before its lane has confirmed the turn")
		}
		s.onTurn(d)
		d.writes--
		if s.Begin(m) != engine.Begins || m.Step != driver.StepDeadLetter {
			t.Errorf("it does not begin when its lane has confirmed the turn, or goes to %v", m.Step)
		}
	})
}

// aSuspect is the first message of an ordered queue, which came back often.
func aSuspect(t *testing.T, cfg Config) (s *source, m *driver.Message[*delivery]) {
	t.Helper()
	cfg.Policy.Order = redeliver.OrderThroughRetries
	f := newOrderedQueue(t, cfg, nil)
	s, in := f.source(true)
	in <- amqp091.Delivery{MessageId: "a1", DeliveryTag: 1, Redelivered: true}
	m = parsed(s, in)[0]
	s.lane = idleLane{posted: make(chan func(), 100)}
	t.Cleanup(s.finishTest)
	return s, m
}

// idleLane is a lane whose goroutine is the test's.
type idleLane struct {
	driver.Lane[*delivery]
	posted chan func()
}

func (l idleLane) Post(f func()) bool {
	l.posted <- f
	return true
}

// runPosted calls the functions that were posted.
func (s *source) runPosted() {
	synctest.Wait()
	for l := s.lane.(idleLane); len(l.posted) > 0; synctest.Wait() {
		(<-l.posted)()
	}
}

// takeTurn gives a suspect its turn.
func takeTurn(t *testing.T, s *source, m *driver.Message[*delivery]) {
	t.Helper()
	if !s.r.client.turn.Take(t.Context(), &engine.Gate{}) {
		t.Fatal("no turn")
	}
	m.Record.hasTurn.Store(true)
	s.runPosted()
	if s.Begin(m) != engine.Begins {
		t.Fatal("it does not begin")
	}
}

// tryBegin reports whether other messages of the client may begin.
func (s *source) tryBegin() bool {
	s.runPosted()
	ok := s.r.client.turn.Begin()
	if ok {
		s.r.client.turn.End()
	}
	return ok
}

// While its copy could not be written, a suspect whose handler had ended once kept its turn, and nothing else of the
// client ran.
func TestASuspectThatCannotBeWrittenEndsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		takeTurn(t, s, m)
		<-time.After(time.Hour)
		if s.tryBegin() {
			t.Error("others may begin while its handler runs")
		}
		s.HandlerEnded(m)
		<-time.After(maxWriteTurn - 1)
		if s.tryBegin() {
			t.Error("others may begin before its copy has had time")
		}
		<-time.After(2)
		if !s.tryBegin() {
			t.Error("it keeps its turn")
		}
		s.End(m, engine.Ending{Kind: engine.Moved})
		s.Settle(m)
		if !s.tryBegin() {
			t.Error("others may not begin after it is settled")
		}
	})
}

// A suspect that expires while it waits for its turn is only written to the DLQ. It once kept the turn until the DLQ had
// accepted it.
func TestASuspectThatExpiresGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		if !s.r.client.turn.Take(t.Context(), &engine.Gate{}) {
			t.Fatal("no turn")
		}
		m.Record.hasTurn.Store(true)
		m.Step, m.Err = driver.StepDeadLetter, errors.New("expired")
		if s.Begin(m) != engine.Begins {
			t.Fatal("it is not written")
		}
		s.onTurn(m.Record)
		if !s.tryBegin() {
			t.Error("others may not begin while it is written")
		}
	})
}

// The same for a suspect from the queue of suspects, also if no handler sees it because it has killed too many processes.
func TestASuspectOfTheQueueThatCannotBeWrittenEndsItsTurn(t *testing.T) {
	for _, step := range []driver.Step{driver.StepHandle, driver.StepDeadLetter} {
		synctest.Test(t, func(t *testing.T) {
			s, m := aSuspect(t, Config{})
			m.Record.suspect, m.Step = false, step
			turn, end := context.WithCancel(context.Background())
			m.Record.endQueueTurn = end
			if s.Begin(m) != engine.Begins {
				t.Fatalf("step %d: it does not begin", step)
			}
			s.HandlerEnded(m)
			<-time.After(maxWriteTurn - 1)
			s.runPosted()
			if turn.Err() != nil {
				t.Errorf("step %d: its turn has ended before its copy has had time", step)
			}
			<-time.After(2)
			s.runPosted()
			if turn.Err() == nil {
				t.Errorf("step %d: it keeps its turn", step)
			}
		})
	}
}

// The wait of one attempt for its copy does not end the turn of the next attempt.
func TestALaterAttemptOfASuspectKeepsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		takeTurn(t, s, m)
		s.HandlerEnded(m)
		s.End(m, engine.Ending{Kind: engine.Stays})
		if !s.tryBegin() {
			t.Fatal("a suspect that waits in its place keeps its turn")
		}
		<-time.After(maxWriteTurn / 2)
		takeTurn(t, s, m)
		<-time.After(time.Hour)
		if s.tryBegin() {
			t.Error("the next attempt has lost its turn")
		}
	})
}

// A suspect once took the client's turn, and then waited for the end of an alarm, with everything else of the client.
func TestASuspectTakesNoTurnInAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		s, m := aSuspect(t, Config{Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeSuspectUnmarked {
				tries.Add(1)
			}
		})})
		s.r.client.publishing.Blocked.Close()
		s.Begin(m)
		<-time.After(time.Hour)
		if n := tries.Load(); n > 0 || !s.tryBegin() {
			t.Errorf("it took the turn in an alarm, %d times", n)
		}
		s.r.client.publishing.Blocked.Open()
		<-time.After(time.Minute)
		if tries.Load() == 0 {
			t.Error("it takes no turn after the alarm")
		}
		s.cancelSuspects()
		synctest.Wait()
	})
}

// While the charge of a suspect cannot be removed, nothing else of the client begins. That once went unreported.
func TestAChargeThatStaysIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int32
		s, m := aSuspect(t, Config{Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeSuspectUnmarked && c.Err != nil {
				reports.Add(1)
			}
		})})
		refuse := func(string, string) (net.Conn, error) { return nil, errFull }
		s.r.client.consuming = link.New(link.Options{URLs: []string{"amqp://localhost"}, AMQP: amqp091.Config{Dial: refuse}})
		s.notes.Link = s.r.client.consuming
		takeTurn(t, s, m)
		s.End(m, engine.Ending{Kind: engine.Stays})
		<-time.After(time.Minute)
		if n := reports.Load(); n != 1 || s.tryBegin() {
			t.Errorf("reported %d times, want once", n)
		}
		s.r.client.consuming.Close()
		<-time.After(time.Minute)
	})
}

// A suspect is settled while its channel ends. Nothing confirms its acks any more, and it gives its turn back.
func TestASuspectThatIsSettledAtTheEndGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		refuse := func(string, string) (net.Conn, error) { return nil, errFull }
		s.r.client.consuming = link.New(link.Options{URLs: []string{"amqp://localhost"}, AMQP: amqp091.Config{Dial: refuse}})
		s.notes.Link = s.r.client.consuming
		s.needNote(m.Record)
		takeTurn(t, s, m)
		s.End(m, engine.Ending{Kind: engine.Moved})
		s.notes.Close()
		s.Settle(m)
		<-time.After(time.Minute)
		if !s.tryBegin() {
			t.Error("it keeps its turn")
		}
		s.r.client.consuming.Close()
		<-time.After(time.Minute)
	})
}

// With PauseNew, a suspect whose turn had ended took a turn and gave it back again and again.
func TestASuspectRequestsNoTurnInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := aSuspect(t, Config{})
		m.Alone = true
		s.r.sub.NewGate.Close()
		if a := s.Begin(m); a != engine.NotYet || m.Record.writes > 0 {
			t.Errorf("the answer is %v, and it requests a turn", a)
		}
		m.Record.hasTurn.Store(true) // since before the pause
		if s.Begin(m) != engine.Begins {
			t.Error("a suspect that has its turn does not begin, and keeps the turn")
		}
	})
}
