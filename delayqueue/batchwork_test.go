package delayqueue_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// member is an adapter's message in batches, in its own form.
type member struct {
	id   string
	sub  *delayqueue.Subscription
	d    *delayqueue.Delivery
	crew *delayqueue.BatchWorkers

	mu     sync.Mutex
	places []*delayqueue.Place // one for each attempt in this process
	ended  []delayqueue.Ending
}

func (m *member) Describe() (redeliver.Headers, []byte) { return nil, []byte(m.id) }
func (m *member) Report(how delayqueue.Ending)          { m.end(how) }
func (m *member) Moved(forwarded bool) {
	if forwarded {
		m.end(delayqueue.Forwarded)
	} else {
		m.end(delayqueue.Abandoned)
	}
}

func (m *member) end(how delayqueue.Ending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = append(m.ended, how)
}

func (m *member) Again() *delayqueue.Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := new(delayqueue.Place)
	m.places = append(m.places, p)
	return p
}

// place is that of an attempt.
func (m *member) place(attempt int) *delayqueue.Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.places[attempt-1]
}

// want checks how the message ended first: what an adapter is told later is ignored.
func (m *member) want(t *testing.T, how delayqueue.Ending, attempts int) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.ended) == 0 || m.ended[0] != how || len(m.places) != attempts {
		t.Errorf("%s ended as %v after %d attempts, want %v after %d", m.id, m.ended, len(m.places), how, attempts)
	}
}

// crew takes messages of a subscription at b in batches to a function, and returns what
// delivers one below a session. One whose id begins with suspect is to be alone.
func crew(t *testing.T, b *broker, p redeliver.Policy, c delayqueue.BatchConfig, fn func(ctx context.Context, b *delayqueue.Batch, all []*member) error) (*delayqueue.Subscription, func(id string, session context.Context) *member) {
	t.Helper()
	sub := &delayqueue.Subscription{Origin: "orders", Group: "billing", Policy: p.WithDefaults(), Scheduler: b, DeadLetters: b, Sink: b}
	w := delayqueue.NewBatchWorkers(c.WithDefaults(), sub, func(b *delayqueue.Batch, all []*delayqueue.Batched) error {
		return fn(b, b, slices.Collect(delayqueue.Members[*member](all)))
	})
	t.Cleanup(w.Close)
	return sub, func(id string, session context.Context) *member {
		m := &member{id: id, sub: sub, crew: w}
		m.d = &delayqueue.Delivery{Sub: sub, Record: record{}, ID: id, Mover: m, Alone: strings.HasPrefix(id, "suspect")}
		m.d.Begin(session)
		w.Give(m.Again(), m.d, m, len(id))
		return m
	}
}

func ids(all []*member) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.id)
	}
	return ids
}

// An attempt in place joins the next batch as a message of its own: what the function has kept of the first one says
// nothing any more.
func TestBatchWorkersRetryInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		var batches []string
		_, give := crew(t, b, redeliver.Policy{Immediate: 1, Timeout: minute}, delayqueue.BatchConfig{Size: 2}, func(_ context.Context, _ *delayqueue.Batch, all []*member) error {
			batches = append(batches, strings.Join(ids(all), " "))
			for _, m := range all {
				if m.id == "b" && len(batches) == 1 && !m.place(1).Answer(errOurs) {
					t.Error("the first answer does not count")
				}
				if m.id == "b" && len(batches) == 2 {
					if st := m.place(2).State(); st.Attempts != 1 || m.place(1).Ack() {
						t.Errorf("it runs as %+v, or the first attempt answers for it", st)
					}
				}
			}
			return nil
		})
		a, bb := give("a", t.Context()), give("b", t.Context())
		synctest.Wait()
		c := give("c", t.Context())
		synctest.Wait()
		if want := []string{"a b", "b c"}; !slices.Equal(batches, want) {
			t.Errorf("batches %q, want %q", batches, want)
		}
		a.want(t, delayqueue.Acked, 1)
		bb.want(t, delayqueue.Acked, 2)
		c.want(t, delayqueue.Acked, 1)
		if got := b.seen(); slices.Contains(got, "level confirms") {
			t.Errorf("it left the process: %q", got)
		}
	})
}

// What must not run goes to the DLQ and is in no batch.
func TestBatchWorkersInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		p := redeliver.Policy{Invalid: func(m redeliver.Message) error {
			switch string(m.Body) {
			case "old":
				return errOurs
			case "odd":
				panic("ours")
			}
			return nil
		}}
		_, give := crew(t, b, p, delayqueue.BatchConfig{Size: 2}, func(_ context.Context, _ *delayqueue.Batch, all []*member) error {
			if got := ids(all); slices.Contains(got, "old") || slices.Contains(got, "odd") {
				t.Errorf("in a batch: %q", got)
			}
			return nil
		})
		old, odd := give("old", t.Context()), give("odd", t.Context())
		fine, too := give("fine", t.Context()), give("too", t.Context())
		synctest.Wait()
		old.want(t, delayqueue.Forwarded, 1)
		odd.want(t, delayqueue.Forwarded, 1)
		fine.want(t, delayqueue.Acked, 1)
		too.want(t, delayqueue.Acked, 1)
		for _, st := range b.wrote {
			if st.Reason != redeliver.ReasonInvalidated || st.Attempts != 0 {
				t.Errorf("in the DLQ as %+v", st)
			}
		}
	})
}

// Who is lost while it waits leaves the queue, and who is lost in a batch that fails is not counted.
func TestBatchWorkersLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		session, end := context.WithCancel(t.Context())
		_, give := crew(t, b, redeliver.Policy{}, delayqueue.BatchConfig{Size: 3, Timeout: hour}, func(ctx context.Context, _ *delayqueue.Batch, all []*member) error {
			if got := ids(all); !slices.Equal(got, []string{"1", "2", "3"}) {
				t.Errorf("in the batch: %q", got)
			}
			<-ctx.Done() // all of them are lost
			return ctx.Err()
		})
		first := []*member{give("1", session), give("2", session), give("3", session)}
		waits := give("4", session)
		<-time.After(minute)
		end()
		late := give("5", session)
		<-time.After(minute)
		for _, m := range append(first, waits, late) {
			m.want(t, delayqueue.Abandoned, 1)
		}
		if n := len(b.wrote); n > 0 {
			t.Errorf("%d were written", n)
		}
	})
}

// A batch that was acked as a whole and is out of time: each message is committed by the adapter, which nobody else tells.
func TestBatchWorkersAckedAndStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		release := make(chan struct{})
		_, give := crew(t, b, redeliver.Policy{Timeout: minute}, delayqueue.BatchConfig{Size: 2}, func(_ context.Context, batch *delayqueue.Batch, all []*member) error {
			all[0].place(1).Retry()
			batch.AckAll()
			<-release
			return errOurs
		})
		first, second := give("a", t.Context()), give("b", t.Context())
		<-time.After(hour)
		first.want(t, delayqueue.Forwarded, 1)
		second.want(t, delayqueue.Acked, 1)
		if n := len(events[redeliver.HandlerStuck](b)); n != 1 {
			t.Errorf("%d are stuck, want the one that the function had not answered", n)
		}
		close(release)
		synctest.Wait()
		if n := len(events[redeliver.LateAnswer](b)); n != 1 {
			t.Errorf("%d late answers", n)
		}
	})
}

// Where messages keep their places the function is told of its Timeout when it is over, and has a moment to heed it:
// what it answers by then runs again in place, as a time-out.
func TestBatchWorkersInBlockingOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		start := time.Now()
		var began []time.Duration
		sub, give := crew(t, b, redeliver.Policy{Timeout: minute, Backoff: redeliver.Fixed(20 * time.Second)}, delayqueue.BatchConfig{Size: 1}, func(ctx context.Context, _ *delayqueue.Batch, _ []*member) error {
			began = append(began, time.Since(start))
			if len(began) > 1 {
				return nil
			}
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Error(ctx.Err())
			}
			return ctx.Err()
		})
		sub.Blocking = true
		m := give("a", t.Context())
		<-time.After(hour)
		m.want(t, delayqueue.Acked, 2)
		if want := []time.Duration{0, minute + 20*time.Second}; !slices.Equal(began, want) {
			t.Errorf("it ran after %v, want %v", began, want)
		}
		if a := events[redeliver.Attempted](b); len(a) != 2 || !errors.Is(a[0].Err, redeliver.ErrTimeout) || len(b.wrote) > 0 {
			t.Errorf("attempts %+v, written %+v", a, b.wrote)
		}
	})
}

// A message in a batch costs nothing of ours, and no goroutine: what is allocated is the batch's.
func TestBatchWorkersAllocateForTheBatchAlone(t *testing.T) {
	const size = 100
	sub := &delayqueue.Subscription{Policy: redeliver.Policy{Timeout: minute}.WithDefaults()}
	done := make(chan struct{})
	w := delayqueue.NewBatchWorkers(delayqueue.BatchConfig{Size: size, Timeout: hour, Concurrency: 1}, sub, func(_ *delayqueue.Batch, all []*delayqueue.Batched) error {
		for i, m := range all {
			if i%2 == 0 && !m.Ack() { // the rest is acked by its end
				t.Error("an ack does not count")
			}
		}
		return nil
	})
	ended := 0
	members := make([]counting, size)
	places := make([]delayqueue.Place, size)
	deliveries := make([]delayqueue.Delivery, size)
	for i := range members {
		members[i] = func() {
			if ended++; ended%size == 0 {
				done <- struct{}{}
			}
		}
	}
	before := runtime.NumGoroutine()
	n := testing.AllocsPerRun(50, func() {
		clear(places)
		clear(deliveries)
		for i := range places {
			d := &deliveries[i]
			d.Sub, d.Record = sub, record{}
			d.Begin(t.Context())
			w.Give(&places[i], d, &members[i], 1)
		}
		<-done
	})
	if n > size/4 {
		t.Errorf("a batch of %d costs %v allocations", size, n)
	}
	if more := runtime.NumGoroutine() - before; more > 2 {
		t.Errorf("%d goroutines more than before", more)
	}
}

// counting is a member that succeeds; its ends are told one after another.
type counting func()

func (*counting) Describe() (redeliver.Headers, []byte) { return nil, nil }
func (c *counting) Report(delayqueue.Ending)            { (*c)() }
func (*counting) Again() *delayqueue.Place              { panic("nothing fails") }
