package delayqueue_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// task is a message in the hands of a handler that is a function.
type task struct {
	handle   func(ctx context.Context) error
	answered bool

	mu     sync.Mutex
	told   []string
	headed redeliver.Headers
}

func (t *task) Handle(a *delayqueue.Attempt) error    { return t.handle(a) }
func (t *task) Describe() (redeliver.Headers, []byte) { return t.headed, []byte("payload") }
func (t *task) Answered() bool                        { return t.answered }
func (t *task) Expired(err error) error               { return err }
func (t *task) Moved(forwarded bool)                  { t.tell("moved", forwarded) }
func (t *task) Settle(acked bool)                     { t.tell("settled", acked) }
func (t *task) work(d *delayqueue.Delivery) (delayqueue.Ending, bool) {
	return delayqueue.Work(new(delayqueue.Attempt), d, t)
}

func (t *task) tell(what string, well bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !well {
		what = "not " + what
	}
	t.told = append(t.told, what)
}

func (t *task) seen() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.told)
}

// What becomes of a message that a handler takes in the broker's own form, and
// who tells the adapter.
func TestWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy redeliver.Policy
		handle func(context.Context) error
		how    delayqueue.Ending
		ended  bool
		told   []string
		log    []string
	}{
		{name: "succeeds", handle: func(context.Context) error { return nil },
			how: delayqueue.Acked, ended: true, log: []string{"Attempted"}},
		{name: "fails", handle: func(context.Context) error { return errOurs },
			how: delayqueue.Forwarded, told: []string{"moved"}, log: []string{"Attempted", "level confirms", "RetryScheduled"}},
		{name: "permanent", handle: func(context.Context) error { return redeliver.Permanent(errOurs) },
			how: delayqueue.Forwarded, told: []string{"moved"}, log: []string{"Attempted", "dlq confirms", "DeadLettered"}},
		{name: "panics", handle: func(context.Context) error { panic("ours") },
			how: delayqueue.Forwarded, told: []string{"moved"}, log: []string{"Attempted", "level confirms", "RetryScheduled"}},
		{name: "invalid", policy: redeliver.Policy{Invalid: func(redeliver.Message) error { return errOurs }},
			handle: func(context.Context) error { panic("it must not run") },
			how:    delayqueue.Forwarded, told: []string{"moved"}, log: []string{"dlq confirms", "DeadLettered"}},
		{name: "times out", policy: redeliver.Policy{Timeout: time.Minute},
			handle: func(ctx context.Context) error { <-ctx.Done(); return nil },
			how:    delayqueue.Forwarded, told: []string{"moved", "settled"}, log: []string{"Attempted", "level confirms", "RetryScheduled"}},
		{name: "is stuck", policy: redeliver.Policy{Timeout: time.Minute},
			handle: func(context.Context) error { <-time.After(hour); return nil },
			how:    delayqueue.Forwarded, told: []string{"moved", "settled"},
			log: []string{"Attempted", "level confirms", "RetryScheduled", "HandlerStuck", "LateAnswer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &broker{}
				sub, d := subscribe(b, t.Context())
				c.policy.Backoff = redeliver.Fixed(minute)
				sub.Policy = c.policy.WithDefaults()
				w := &task{handle: c.handle}
				d.Mover = w
				how, ended := w.work(d)
				if how != c.how || ended != c.ended {
					t.Errorf("ended as %d (%v), want %d (%v)", how, ended, c.how, c.ended)
				}
				synctest.Wait()
				if got := w.seen(); !slices.Equal(got, c.told) {
					t.Errorf("the adapter was told %q, want %q", got, c.told)
				}
				if got := b.seen(); !slices.Equal(got, c.log) {
					t.Errorf("%q, want %q", got, c.log)
				}
			})
		})
	}
}

// A message without a body has one that the policy may call invalid, as a tombstone of Kafka;
// what can say nothing of itself is not asked about.
func TestWhatIsAskedWhetherItIsInvalid(t *testing.T) {
	sub, d := subscribe(&broker{}, t.Context())
	var asked []redeliver.Message
	sub.Policy.Invalid = func(m redeliver.Message) error {
		asked = append(asked, m)
		return errOurs
	}
	headers := message.Metadata{"kind": "tombstone"}
	for _, c := range []struct {
		headers redeliver.Headers
		body    []byte
		want    bool
	}{
		{headers, nil, true},
		{headers, []byte("payload"), true},
		{nil, []byte("payload"), true},
		{nil, nil, false},
	} {
		asked = nil
		err := d.Invalid(c.headers, c.body)
		if errors.Is(err, errOurs) != c.want || (len(asked) == 1) != c.want {
			t.Errorf("%v, %q: %v, asked %d times", c.headers, c.body, err, len(asked))
		}
		if c.want && (string(asked[0].Body) != string(c.body) || asked[0].State.ID != d.ID) {
			t.Errorf("asked about %+v", asked[0])
		}
	}
}

// A retry in place: the second attempt knows of the first, and ends with the message.
func TestWorkRetriesInPlace(t *testing.T) {
	b := &broker{}
	sub, d := subscribe(b, t.Context())
	sub.Policy.Immediate = 1
	var attempts []int
	var seen []context.Context
	w := &task{handle: func(ctx context.Context) error {
		st, _ := redeliver.FromContext(ctx)
		attempts = append(attempts, st.Attempt())
		seen = append(seen, ctx)
		if len(attempts) == 1 {
			return errOurs
		}
		return nil
	}}
	d.Mover = w
	if how, ended := w.work(d); how != delayqueue.Acked || !ended {
		t.Errorf("ended as %d (%v)", how, ended)
	}
	if want := []int{1, 2}; !slices.Equal(attempts, want) {
		t.Errorf("attempts %v, want %v", attempts, want)
	}
	last := seen[len(seen)-1]
	if last.Err() != nil {
		t.Errorf("before the message has landed: %v", last.Err())
	}
	d.End(nil)
	if last.Err() == nil {
		t.Error("the context lives on after the message has landed")
	}
}

// What was lost to this process is nobody's to count.
func TestWorkAbandonsWhatIsLost(t *testing.T) {
	for _, c := range []struct {
		name string
		when string
		log  []string
	}{
		{"before", "before", nil},
		{"while it runs", "while", []string{"Attempted", "Abandoned"}},
	} {
		session, end := context.WithCancel(t.Context())
		b := &broker{}
		_, d := subscribe(b, session)
		w := &task{handle: func(context.Context) error { end(); return errOurs }}
		d.Mover = w
		if c.when == "before" {
			end()
		}
		if how, ended := w.work(d); how != delayqueue.Abandoned || !ended {
			t.Errorf("%s: ended as %d (%v)", c.name, how, ended)
		}
		if got := b.seen(); !slices.Equal(got, c.log) {
			t.Errorf("%s: %q, want %q", c.name, got, c.log)
		}
		end()
	}
}

// A time-out of what was lost meanwhile settles nothing, and the adapter is told.
func TestWorkTellsOfWhatIsLostWhenItTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		session, end := context.WithCancel(t.Context())
		b := &broker{}
		sub, d := subscribe(b, session)
		sub.Policy.Timeout = minute
		w := &task{handle: func(context.Context) error { end(); <-time.After(hour); return nil }}
		d.Mover = w
		if how, ended := w.work(d); how != delayqueue.Forwarded || ended { // Settle tells
			t.Errorf("ended as %d (%v)", how, ended)
		}
		if got, want := w.seen(), []string{"not moved", "not settled"}; !slices.Equal(got, want) {
			t.Errorf("the adapter was told %q, want %q", got, want)
		}
		if got, want := b.seen(), []string{"Attempted", "Abandoned", "HandlerStuck", "LateAnswer"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A handler that has settled its message itself has answered.
func TestWorkLeavesWhatTheHandlerSettled(t *testing.T) {
	b := &broker{}
	_, d := subscribe(b, t.Context())
	w := &task{}
	w.handle = func(context.Context) error { w.answered = true; return errOurs }
	if how, ended := w.work(d); how != delayqueue.Forwarded || ended {
		t.Errorf("ended as %d (%v)", how, ended)
	}
	if got, want := b.seen(), []string{"Attempted"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

type named struct{ asked *int }

func (named) Message() (*message.Message, error) { return nil, errors.New("nobody wants one") }
func (n named) ID() string                       { *n.asked++; return "orders/0/1" }

// A message that succeeds costs nothing but what the adapter keeps for it, and
// nobody asks for its id.
func TestWorkAllocatesNothing(t *testing.T) {
	sub := &delayqueue.Subscription{Origin: "orders", Group: "billing", Policy: redeliver.Policy{Timeout: hour}.WithDefaults()}
	asked := 0
	slab := make([]struct {
		d delayqueue.Delivery
		a delayqueue.Attempt
	}, 1001)
	w := &task{handle: func(context.Context) error { return nil }}
	n := testing.AllocsPerRun(1000, func() {
		e := &slab[0]
		slab = slab[1:]
		e.d.Sub, e.d.Record = sub, named{&asked}
		e.d.Begin(context.Background())
		delayqueue.Work(&e.a, &e.d, w)
		e.d.End(nil)
	})
	if n != 0 || asked != 0 {
		t.Errorf("%v allocations, %d times asked for the id", n, asked)
	}
	d := &delayqueue.Delivery{Sub: sub, Record: named{&asked}}
	if st := d.State(); st.ID != "orders/0/1" {
		t.Errorf("the id is %q", st.ID)
	}
	d.ID = "a"
	if st := d.State(); st.ID != "a" {
		t.Errorf("the id is %q, and the delivery had one", st.ID)
	}
}

// Workers do what they are given, in order, and as much at once as is given.
func TestWorkers(t *testing.T) {
	const n = 100
	begun, proceed, done := make(chan int, n), make(chan struct{}), make(chan int, n)
	w := delayqueue.NewWorkers(func(i int) {
		begun <- i
		<-proceed
		done <- i
		if i%10 == 0 {
			runtime.Goexit() // as t.FailNow in a handler does
		}
	})
	for range 3 { // the second time with workers that are there
		for i := range n {
			w.Give(i)
		}
		seen := make([]bool, n)
		for range n {
			seen[<-begun] = true // all run at once
		}
		for range n {
			proceed <- struct{}{}
			<-done
		}
		if slices.Contains(seen, false) {
			t.Errorf("not all were done: %v", seen)
		}
	}
	w.Close()
}

// What is given after Close is done, too, although all who were idle have ended.
func TestWorkersAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan int, 3)
		w := delayqueue.NewWorkers(func(i int) { done <- i })
		w.Give(0)
		synctest.Wait()
		w.Close()
		for i := range 2 {
			synctest.Wait()
			w.Give(i + 1)
		}
		synctest.Wait()
		if len(done) != 3 {
			t.Errorf("%d were done, want 3", len(done))
		}
	})
}
