package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// starts records when handlers begin.
type starts struct {
	mu  sync.Mutex
	at  []time.Duration
	ids []string
}

func (s *starts) add(j *journal, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.ids = append(s.at, time.Since(j.begun).Round(time.Millisecond)), append(s.ids, id)
}

func (s *starts) take() ([]time.Duration, []string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ids := s.at, s.ids
	s.at, s.ids = nil, nil
	return at, ids
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

// Attempts begin at the rate, retries and immediate ones included. A wait for the rate is no attempt.
func TestAttemptsBeginAtTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Immediate: 1, MaxRetries: 2, Backoff: redeliver.Fixed(time.Second), Rate: redeliver.Rate{PerSecond: 2, Burst: 3}})
		var s starts
		burst := make(chan struct{}) // closed when the third has begun; a retry before that would be one of the burst
		j.start(t, handle(func(ctx context.Context, r *record) error {
			s.add(j, r.id)
			if r.id == "2" {
				close(burst)
			}
			if st, _ := redeliver.FromContext(ctx); r.id == "0" && st.Attempts < 2 {
				<-burst
				return errOurs
			}
			return nil
		}))
		j.publish(numbered(6)...)
		<-time.After(time.Minute)
		at, ids := s.take()
		// Message 0 has an immediate retry, which counts: three attempts begin in the burst, and the fourth doubles the
		// next wait.
		if want := []time.Duration{0, 0, 0, 0, time.Second, 1500 * time.Millisecond, 2 * time.Second, 2500 * time.Millisecond}; !slices.Equal(at, want) {
			t.Errorf("%q began at %v, want %v", ids, at, want)
		}
		if settled, dead := j.all(); len(settled) != 7 || len(dead) > 0 { // 0 was settled twice: also its copy
			t.Errorf("settled %v, in the DLQ %v", settled, dead)
		}
	})
}

// All lanes of a subscription share its rate equally.
func TestLanesShareTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newJournal(redeliver.Policy{Rate: redeliver.Rate{PerSecond: 10, Burst: 1}})
		two := &journal{broker: newBroker(redeliver.Policy{})}
		var s starts
		opt := handle(func(_ context.Context, r *record) error { s.add(one, r.id); return nil })
		opt.Sub, opt.Codec, opt.Store = one.sub, one, one
		e := engine.New(opt)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i, j := range []*journal{one, two} {
			for range 50 {
				j.publish([]string{"one", "two"}[i])
			}
			all.Go(func() {
				e.RunLane(ctx, context.Background(), j.broker, engine.LaneOptions[*record]{DrainTimeout: time.Hour}, nil)
			})
		}
		<-time.After(2*time.Second + 50*time.Millisecond)
		_, ids := s.take()
		ones := len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "two" }))
		if len(ids) != 21 || ones < 9 || ones > 12 {
			t.Errorf("%d began in two seconds, %d of the first lane; want 21, and half of them", len(ids), ones)
		}
		// Waiting messages are returned at the end.
		began := time.Now()
		cancel()
		all.Wait()
		e.Close()
		if took := time.Since(began); took > 0 || len(one.returned)+len(two.returned) != 79 {
			t.Errorf("the end took %s, and %d were returned; want 79 at once", took, len(one.returned)+len(two.returned))
		}
	})
}

// A message that waits for the rate has no slot.
func TestAMessageThatWaitsForTheRateHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Rate: redeliver.Rate{PerSecond: 0.1, Burst: 1}})
		j.start(t, handle(func(context.Context, *record) error { return nil }))
		j.publish(numbered(5)...)
		<-time.After(time.Second)
		synctest.Wait()
		if l := j.sub.Load(); l.InFlight != 0 || l.Held != 4 {
			t.Errorf("%+v, want nothing in flight and 4 held", l)
		}
	})
}

// Expired messages, and those that a gater refuses, do not count for the rate.
func TestAMessageThatDoesNotRunUsesUpNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Rate: redeliver.Rate{PerSecond: 0.01, Burst: 2}})
		var s starts
		opt := handle(func(_ context.Context, r *record) error { s.add(j, r.id); return nil })
		opt.Store = j
		j.run(t, opt, engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{refusingGater{}}})
		for i := range 20 {
			j.in <- &record{id: fmt.Sprint("old ", i), expires: time.Now().Add(-time.Second)}
			j.in <- &record{id: fmt.Sprint("refused ", i)}
		}
		j.publish("a", "b", "c")
		<-time.After(time.Second)
		if _, ids := s.take(); !slices.Equal(ids, []string{"a", "b"}) || len(j.dead) != 20 {
			t.Errorf("%q ran, %d are in the DLQ; want a and b, and 20", ids, len(j.dead))
		}
	})
}

// A message that a gater moves does not count for the rate. Its write may take long, and has a slot.
func TestAMessageThatAGaterMovesUsesUpNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Rate: redeliver.Rate{PerSecond: 0.01, Burst: 1}})
		j.sub.MaxInFlight = 3
		written := make(chan struct{})
		j.answer = func(context.Context, string, int) error { <-written; return nil }
		var s starts
		opt := handle(func(_ context.Context, r *record) error { s.add(j, r.id); return nil })
		opt.Store = j
		j.run(t, opt, engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{&funcGater{begin: func(m *driver.Message[*record]) engine.Admission {
			if m.Record.id == "moves" {
				m.Step, m.State = driver.StepHop, &redeliver.State{ID: m.Record.id, Due: time.Now().Add(time.Hour)}
			}
			return engine.Begins
		}}}})
		j.publish("moves", "moves", "runs", "moves", "moves")
		if at, ids := s.take(); !slices.Equal(ids, []string{"runs"}) {
			t.Errorf("%q ran at %v, want the one that is not moved, at once", ids, at)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if l := j.sub.Load(); l.InFlight != 3 {
			t.Errorf("%d are being written, and there are 3 slots", l.InFlight)
		}
		close(written)
	})
}

// refusingGater is a gater that refuses messages by their names.
type refusingGater struct{}

func (refusingGater) Begin(m *driver.Message[*record]) engine.Admission {
	if len(m.Record.id) > len("refused") && m.Record.id[:len("refused")] == "refused" {
		return engine.NotYet
	}
	return engine.Begins
}
func (refusingGater) HandlerEnded(*driver.Message[*record])       {}
func (refusingGater) End(*driver.Message[*record], engine.Ending) {}
