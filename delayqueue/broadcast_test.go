package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// air is a broadcast consumer in a test: a source of messages, and what became of them.
type air struct {
	*delayqueue.Broadcast
	b    *broker
	ctx  context.Context
	stop func() // ends the intake and waits until Run returns

	mu   sync.Mutex
	done []string // in the order of their Done
}

func onAir(t *testing.T, p redeliver.Policy, inFlight int) *air {
	t.Helper()
	var ps redeliver.Problems
	b := &broker{}
	sub := &delayqueue.Subscription{Origin: "prices", Policy: delayqueue.BroadcastPolicy(&ps, "Policy", p), Sink: b, MaxInFlight: inFlight}
	if err := ps.Err(); err != nil {
		t.Fatal(err)
	}
	a := &air{Broadcast: delayqueue.NewBroadcast(t.Context(), sub), b: b}
	ctx, cancel := context.WithCancel(t.Context())
	a.ctx = ctx
	over := make(chan struct{})
	go func() {
		defer close(over)
		a.Run(ctx, 10*time.Second, func(ctx context.Context) { <-ctx.Done() })
	}()
	a.stop = func() { cancel(); <-over }
	t.Cleanup(a.stop)
	return a
}

// put delivers messages; those of one key have the same first byte, "-" has none.
func (a *air) put(ids ...string) {
	for _, id := range ids {
		a.Deliver(a.ctx, &delayqueue.Aired{
			Record: aired(id), ID: id, Key: uint64(id[0]), Keyed: id[0] != '-',
			Done: func(settled bool) {
				a.mu.Lock()
				defer a.mu.Unlock()
				if !settled {
					id = "not " + id
				}
				a.done = append(a.done, id)
			},
		})
	}
}

func (a *air) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.done)
}

type aired string

func (id aired) Message() (*message.Message, error) {
	if id == "-garbage" {
		return nil, errOurs
	}
	return message.NewMessage(string(id), []byte("payload")), nil
}

// A handler sees the values of who published the message, too, and the message's own state
// although that context may be another message's.
func TestAMessageOnAirHasItsPublishersValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onAir(t, redeliver.Policy{}, 1)
		_, others := subscribe(&broker{}, t.Context())
		values := context.WithValue(others, key{}, "the publisher's")
		go a.Deliver(a.ctx, &delayqueue.Aired{Record: aired("-m"), ID: "-m", Values: values, Done: func(bool) {}})
		msg := <-a.Out
		defer msg.Ack()
		ctx := msg.Context()
		if st, _ := redeliver.FromContext(ctx); ctx.Value(key{}) != "the publisher's" || st.ID != "-m" || st.Origin != "prices" {
			t.Errorf("the handler sees %v and %+v", ctx.Value(key{}), st)
		}
	})
}

// What becomes of each message that fails, and that the next goes on.
func TestABroadcastTellsOfAFailureAndGoesOn(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy redeliver.Policy
		id     string
		handle func(*message.Message)
		reason redeliver.Reason // "" where it is committed
		runs   int
		cause  error
	}{
		{name: "succeeds", id: "-m", handle: func(m *message.Message) { m.Ack() }, runs: 1},
		{name: "is nacked", id: "-m", handle: func(m *message.Message) { m.Nack() }, reason: redeliver.ReasonExhausted, runs: 1, cause: redeliver.ErrNacked},
		{name: "says why", id: "-m", handle: func(m *message.Message) { delayqueue.Explain(m.Context(), errOurs); m.Nack() }, reason: redeliver.ReasonExhausted, runs: 1, cause: errOurs},
		{name: "permanent", policy: redeliver.Policy{Immediate: 2}, id: "-m",
			handle: func(m *message.Message) { delayqueue.Explain(m.Context(), redeliver.Permanent(errOurs)); m.Nack() },
			reason: redeliver.ReasonPermanent, runs: 1, cause: errOurs},
		{name: "at once, twice", policy: redeliver.Policy{Immediate: 2}, id: "-m", handle: func(m *message.Message) { m.Nack() }, reason: redeliver.ReasonExhausted, runs: 3, cause: redeliver.ErrNacked},
		{name: "would wait", policy: redeliver.Policy{Immediate: 2}, id: "-m",
			handle: func(m *message.Message) {
				delayqueue.Explain(m.Context(), redeliver.RetryAfter(errOurs, time.Hour))
				m.Nack()
			}, reason: redeliver.ReasonExhausted, runs: 1, cause: errOurs},
		{name: "is not settled", id: "-m", handle: func(*message.Message) {}, reason: redeliver.ReasonTimeout, runs: 1, cause: redeliver.ErrTimeout},
		{name: "is not settled, and would run again", policy: redeliver.Policy{Immediate: 1}, id: "-m", handle: func(*message.Message) {}, reason: redeliver.ReasonTimeout, runs: 1, cause: redeliver.ErrTimeout},
		{name: "cannot be read", id: "-garbage", reason: redeliver.ReasonUndecodable, cause: errOurs},
		{name: "must not run", policy: redeliver.Policy{Invalid: func(m redeliver.Message) error {
			if m.State.ID == "-m" {
				return errOurs
			}
			return nil
		}}, id: "-m", reason: redeliver.ReasonInvalidated, cause: errOurs},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.policy.Timeout = time.Minute
				a := onAir(t, c.policy, 1)
				go a.put(c.id, "-next")
				runs := 0
				for msg := range a.Out {
					if msg.UUID == "-next" {
						msg.Ack()
						break
					}
					runs++
					if st, ok := redeliver.FromContext(msg.Context()); !ok || st.Attempt() != runs || st.Origin != "prices" {
						t.Errorf("run %d has the state %+v", runs, st)
					}
					c.handle(msg)
				}
				synctest.Wait()
				done := a.seen() // the next may be over first
				if slices.Sort(done); runs != c.runs || !slices.Equal(done, []string{c.id, "-next"}) {
					t.Errorf("ran %d times, want %d; done %q", runs, c.runs, done)
				}
				failed := events[redeliver.BroadcastFailed](a.b)
				switch {
				case c.reason == "":
					if len(failed) != 0 || len(events[redeliver.Committed](a.b)) != 2 {
						t.Errorf("told %v", a.b.log)
					}
				case len(failed) != 1 || failed[0].State.Reason != c.reason || failed[0].State.ID != c.id || !errors.Is(failed[0].Err, c.cause):
					t.Errorf("told %+v, want %s because of %v", failed, c.reason, c.cause)
				}
			})
		})
	}
}

// A handler that outlives its Timeout is counted until it answers, and takes nobody's place.
func TestABroadcastDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onAir(t, redeliver.Policy{Timeout: time.Minute}, 1)
		go a.put("k1", "k2", "-3")
		first := <-a.Out
		second := <-a.Out // when its time is over
		if first.Context().Err() == nil {
			t.Error("its context has not ended")
		}
		second.Ack()
		(<-a.Out).Ack()
		<-time.After(2 * time.Second)
		if stuck := events[redeliver.HandlerStuck](a.b); len(stuck) != 1 || stuck[0].Stuck != 1 {
			t.Errorf("stuck: %+v", stuck)
		}
		first.Nack()
		synctest.Wait()
		if late := events[redeliver.LateAnswer](a.b); len(late) != 1 || late[0].Stuck != 0 {
			t.Errorf("late: %+v", late)
		}
		if len(events[redeliver.BroadcastFailed](a.b)) != 1 || len(a.seen()) != 3 {
			t.Errorf("told %v, done %v", a.b.log, a.seen())
		}
	})
}

// Time that a message waits for somebody to take it is not its handler's.
func TestABroadcastsTimeoutBeginsWithTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onAir(t, redeliver.Policy{Timeout: time.Minute}, 4)
		a.put("-1", "-2", "-3", "-4")
		for range 4 {
			<-time.After(50 * time.Second)
			(<-a.Out).Ack()
		}
		synctest.Wait()
		if n := len(events[redeliver.Committed](a.b)); n != 4 {
			t.Errorf("%d commits: %v", n, a.b.log)
		}
	})
}

// Messages of one key run one after another, others beside them, MaxInFlight at once.
func TestABroadcastKeepsTheOrderOfKeys(t *testing.T) {
	for _, order := range []redeliver.Order{redeliver.KeyOrder, redeliver.Unordered} {
		t.Run(order.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := onAir(t, redeliver.Policy{Order: order}, 3)
				a.put("a1", "a2", "b1", "a3", "b2", "-1")
				next := func() (ids []string, all []*message.Message) {
					synctest.Wait()
					for range 3 {
						select {
						case msg := <-a.Out:
							ids, all = append(ids, msg.UUID), append(all, msg)
						default:
						}
					}
					slices.Sort(ids)
					return ids, all
				}
				var got [][]string
				for {
					ids, all := next()
					if ids == nil {
						break
					}
					got = append(got, ids)
					for _, msg := range all {
						msg.Ack()
					}
				}
				want := [][]string{{"-1", "a1", "b1"}, {"a2", "b2"}, {"a3"}}
				if order == redeliver.Unordered {
					want = [][]string{{"a1", "a2", "b1"}, {"-1", "a3", "b2"}}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("ran %v, want %v", got, want)
				}
				a.put("a4") // nothing of its key is under way
				if ids, all := next(); len(ids) != 1 {
					t.Errorf("a later one of the key: %q", ids)
				} else {
					all[0].Ack()
				}
			})
		})
	}
}

// The end waits for what runs, and lets the rest go.
func TestABroadcastEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := onAir(t, redeliver.Policy{}, 2)
		a.put("a1", "b1", "a2", "-1") // a2 waits for its key, -1 for a slot
		first, second := <-a.Out, <-a.Out
		began := time.Now()
		go a.stop()
		synctest.Wait()
		if got := a.seen(); len(got) != 1 || got[0] != "not -1" {
			t.Errorf("dropped %q at once", got)
		}
		first.Ack()
		<-second.Context().Done() // the drain timeout
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("its context ended after %s", took)
		}
		if _, open := <-a.Out; open {
			t.Error("something was delivered")
		}
		got := a.seen()
		slices.Sort(got)
		want := []string{first.UUID, "not -1", "not a2", "not " + second.UUID}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("done %q, want %q", got, want)
		}
		if len(events[redeliver.BroadcastFailed](a.b)) != 0 || len(events[redeliver.Abandoned](a.b)) != 1 {
			t.Errorf("told %v", a.b.log)
		}
		if a.Deliver(a.ctx, &delayqueue.Aired{}) {
			t.Error("it takes messages when it is over")
		}
	})
}

// What a broadcast consumer has none of is refused.
func TestBroadcastPolicyRefusesWhatWaits(t *testing.T) {
	for field, p := range map[string]redeliver.Policy{
		"Policy.MaxRetries": {MaxRetries: 3},
		"Policy.Backoff":    {Backoff: redeliver.Fixed(time.Second)},
		"Policy.Levels":     {Levels: []time.Duration{time.Second}},
		"Policy.Order":      {Order: redeliver.Blocking},
		"Policy.Timeout":    {Timeout: -2},
		"Policy.Immediate":  {Immediate: -1},
	} {
		var ps redeliver.Problems
		delayqueue.BroadcastPolicy(&ps, "Policy", p)
		if len(ps) != 1 || ps[0].Field != field {
			t.Errorf("%s: %v", field, ps)
		}
	}
	var ps redeliver.Problems
	p := delayqueue.BroadcastPolicy(&ps, "Policy", redeliver.Policy{Immediate: 2})
	if len(ps) != 0 || p.MaxRetries != 2 || p.Timeout != redeliver.DefaultTimeout {
		t.Errorf("%v, %+v", ps, p)
	}
}
