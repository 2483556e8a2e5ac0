package amqp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// orderedQueue is an ordered queue with the test as its broker.
type orderedQueue struct {
	*testing.T
	r      *reader
	e      *engine.Engine[*delivery]
	server *amqptest.Server // of the last source
	tags   uint64

	mu   sync.Mutex
	ran  []string
	news chan struct{} // has room for one
}

func newOrderedQueue(t *testing.T, cfg Config, handler func(ran []string, st redeliver.State) error) *orderedQueue {
	t.Helper()
	return newNativeOrderedQueue(t, cfg, func(f *orderedQueue, ctx context.Context, _ amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		f.mu.Lock()
		f.ran = append(f.ran, st.ID)
		ran := slices.Clone(f.ran)
		f.mu.Unlock()
		select {
		case f.news <- struct{}{}:
		default:
		}
		return handler(ran, st)
	})
}

func newNativeOrderedQueue(t *testing.T, cfg Config, handler func(*orderedQueue, context.Context, amqp091.Delivery) error) *orderedQueue {
	t.Helper()
	f := &orderedQueue{T: t, news: make(chan struct{}, 1)}
	cfg.Key = func(d amqp091.Delivery) string { return d.MessageId[:1] }
	if cfg.Sink == nil {
		cfg.Sink = redeliver.SinkFunc(func(redeliver.Event) {})
	}
	cfg = cfg.withDefaults()
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	c := &client{cfg: cfg, turn: engine.NewTurn(), places: placesOf()}
	c.consuming, c.publishing = link.New(link.Options{}), link.New(link.Options{})
	c.consuming.Close()
	c.forwarded = link.NewSender(c.consuming)
	f.r = newReader(context.Background(), c, l)
	f.e = engine.New(engine.Options[*delivery]{
		Sub: f.r.sub, Codec: codec{layout: l}, Store: f.r.store,
		Handle: handle(0, func(ctx context.Context, d amqp091.Delivery) error { return handler(f, ctx, d) }),
	})
	t.Cleanup(f.e.Close)
	return f
}

// source returns a source of the queue, and the channel that delivers to it.
func (f *orderedQueue) source(redelivered bool, ids ...string) (s *source, in chan amqp091.Delivery) {
	f.Helper()
	in = make(chan amqp091.Delivery, 100)
	f.server = amqptest.NewServer(f.T)
	s = newSource(f.r, queueConfig{kind: layout.MainQueue, queue: "orders", prefetch: 50}, f.server.Ch)
	for _, id := range ids {
		f.tags++
		in <- amqp091.Delivery{MessageId: id, DeliveryTag: f.tags, Redelivered: redelivered, Headers: amqp091.Table{"x-delivery-count": int64(0)}}
	}
	return s, in
}

// place returns the key of the state of a message that source delivers.
func (f *orderedQueue) place(id string) placeKey {
	d := new(slab).delivery(&amqp091.Delivery{MessageId: id})
	return placeKey{queue: "orders", message: d.identity()}
}

// await returns when ok accepts the messages that ran.
func (f *orderedQueue) await(ok func(ran []string) bool) {
	f.Helper()
	over := time.After(time.Minute)
	for {
		f.mu.Lock()
		fine := ok(f.ran)
		f.mu.Unlock()
		if fine {
			return
		}
		select {
		case <-f.news:
		case <-over:
			f.Fatalf("ran %q", f.ran)
		}
	}
}

var errFull = errors.New("the account is full")

// run runs a source and returns its end.
func (f *orderedQueue) run(ctx context.Context, s *source, in <-chan amqp091.Delivery) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx, f.e, in) }()
	return ended
}

func (f *orderedQueue) ended(end <-chan error) error {
	f.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(time.Minute):
		f.Fatal("the source has not ended within a minute")
		return nil
	}
}

// parsed makes a source that does not run parse its messages, and returns them.
func parsed(s *source, in <-chan amqp091.Delivery) (all []*driver.Message[*delivery]) {
	var room slab
	for len(in) > 0 {
		d := <-in
		m := &driver.Message[*delivery]{Record: room.delivery(&d)}
		_ = s.Parse(m) // always nil
		all = append(all, m)
	}
	return all
}

func TestBlockingQueueRunsOneAtATime(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(10 * time.Millisecond)}}, func(_ []string, st redeliver.State) error {
		if st.ID == "b" && st.Attempts < 2 {
			return errFull
		}
		return nil
	})
	s, in := f.source(false, "a", "b", "c", "d")
	end := f.run(t.Context(), s, in)
	f.await(func(ran []string) bool { return slices.Contains(ran, "d") })
	close(in)
	_ = f.ended(end)
	if want := []string{"a", "b", "b", "b", "c", "d"}; !slices.Equal(f.ran, want) {
		t.Errorf("ran %q, want %q", f.ran, want)
	}
}

// The only slot is free while a key waits, so that others can run.
func TestWaitingKeyHoldsNoSlot(t *testing.T) {
	others := []string{"b1", "c1", "b2"}
	f := newOrderedQueue(t, Config{MaxInFlight: 1, Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: 1000, Backoff: redeliver.Fixed(10 * time.Millisecond)}}, func(ran []string, st redeliver.State) error {
		if st.ID == "a1" && slices.ContainsFunc(others, func(id string) bool { return !slices.Contains(ran, id) }) {
			return errFull
		}
		return nil
	})
	s, in := f.source(false, "a1", "a2", "b1", "c1", "b2")
	end := f.run(t.Context(), s, in)
	f.await(func(ran []string) bool { return slices.Contains(ran, "a2") })
	close(in)
	_ = f.ended(end)
	if at := slices.Index(f.ran, "a2"); at != len(f.ran)-1 || slices.Index(f.ran, "b1") > slices.Index(f.ran, "b2") {
		t.Errorf("ran %q", f.ran)
	}
}

// A message that waits in its place does not delay the end of a subscriber, and the process still has its state when it
// comes back.
func TestOrderedStateIsRememberedAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(stop context.CancelFunc, s *source, in chan amqp091.Delivery){
		"in order": func(stop context.CancelFunc, _ *source, _ chan amqp091.Delivery) { stop() },
		"lost":     func(_ context.CancelFunc, s *source, _ chan amqp091.Delivery) { _ = s.ch.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			waits := make(chan struct{}, 1)
			f := newOrderedQueue(t, Config{
				DrainTimeout: time.Hour, ConsumerTimeout: 4 * time.Hour, Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, Backoff: redeliver.Fixed(2 * time.Hour)},
				Sink: redeliver.SinkFunc(func(e redeliver.Event) {
					if _, ok := e.(redeliver.RetryScheduled); ok {
						waits <- struct{}{}
					}
				}),
			}, func([]string, redeliver.State) error { return errFull })
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s, in := f.source(false, "a1", "a2")
			ended := f.run(ctx, s, in)
			<-waits
			for held := false; !held; { // the lane holds the message only after the event
				held = f.r.sub.Load().Held == 2
			}
			end(stop, s, in)
			_ = f.ended(ended)
			again, back := f.source(true, "a1", "a2")
			all := parsed(again, back)
			if st := all[0].State; st == nil || st.Attempts != 1 || !all[0].InPlace || !all[0].Until.Equal(st.Due) || time.Until(st.Due) < time.Hour {
				t.Errorf("the state of a1 is %+v", all[0])
			}
			if all[1].State != nil || all[1].Key != all[0].Key || all[1].Key == 0 {
				t.Errorf("the state of a2 is %+v", all[1])
			}
			again.finishTest()
		})
	}
}

// finishTest closes a source that never ran.
func (s *source) finishTest() { _ = s.ch.Close() }

// A message that stays behind another for half of the consumer timeout ends the channel.
func TestOldMessagesEndTheChannel(t *testing.T) {
	f := newOrderedQueue(t, Config{
		ConsumerTimeout: 2 * time.Second, Policy: redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: 60, Timeout: time.Second, Backoff: redeliver.Fixed(20 * time.Millisecond)},
	}, func([]string, redeliver.State) error { return errFull })
	s, in := f.source(false, "a", "b")
	if err := f.ended(f.run(t.Context(), s, in)); !errors.Is(err, errHeldTooLong) {
		t.Fatalf("the source ended with %v", err)
	}
	if st := f.r.client.places.Take(f.place("a")); st == nil || st.Attempts == 0 {
		t.Errorf("the state of a is %+v", st)
	}
	if st := f.r.client.places.Take(f.place("b")); st != nil {
		t.Errorf("the state of b is %+v", st)
	}
	if slices.Contains(f.ran, "b") {
		t.Errorf("ran %q", f.ran)
	}
}

// A message from a redeliver queue has its key for Policy.Invalid and waits for no other message. If the key function
// panics, it has no key and runs.
func TestRetryHasItsKeyForInvalid(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries, Invalid: func(redeliver.Message) error { return nil }}}, nil)
	for _, kind := range []layout.Kind{layout.RetryQueue, layout.DelayQueue, layout.SuspectQueue} {
		s := newSource(f.r, queueConfig{kind: kind, queue: "orders.retry", prefetch: 50}, amqptest.NewServer(t).Ch)
		in := make(chan amqp091.Delivery, 3)
		for tag, id := range []string{"", "a1", "a2"} {
			in <- amqp091.Delivery{MessageId: id, DeliveryTag: uint64(tag) + 1}
		}
		all := parsed(s, in)
		if key := (codec{}).Key(all[0]); key != nil || all[0].Step != driver.StepHandle {
			t.Errorf("%s: the first has the key %q and goes to %v", kind, key, all[0].Step)
		}
		if key := (codec{}).Key(all[1]); string(key) != "a" || all[1].Key != 0 {
			t.Errorf("%s: the second has the key %q, and is in line %d", kind, key, all[1].Key)
		}
		s.finishTest()
	}
}

// A key function that panics affects only that message.
func TestPanickingKeyIsUndecodable(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, nil)
	s, in := f.source(false, "", "a")
	all := parsed(s, in)
	var panicked *redeliver.PanicError
	if !errors.As(all[0].Err, &panicked) || all[0].Step != driver.StepDeadLetter || all[0].Key != 0 || all[1].Key == 0 || all[1].Step != driver.StepHandle {
		t.Errorf("the first is %v, in line %d; the second is in line %d", all[0].Err, all[0].Key, all[1].Key)
	}
	s.finishTest()
}

// In an ordered queue only the first message of each key can have killed its process, because those behind it have
// not run. Messages whose state this process has kept have not killed it: while a dependency is down they come back
// every half of ConsumerTimeout.
func TestOnlyTheFirstOfEachKeyIsSuspect(t *testing.T) {
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, nil)
	f.r.client.places.Put(f.place("d1"), &redeliver.State{ID: "d1", Attempts: 1})
	s, in := f.source(true)
	for tag, row := range []struct {
		id    string
		count any
	}{{"a1", int64(layout.MaxReturns)}, {"a2", int64(layout.MaxReturns)}, {"b1", int64(layout.MaxReturns - 1)}, {"c1", nil}, {"d1", int64(layout.MaxReturns)}} {
		in <- amqp091.Delivery{MessageId: row.id, DeliveryTag: uint64(tag) + 1, Redelivered: true, Headers: amqp091.Table{"x-delivery-count": row.count}}
	}
	var suspects []string
	for _, m := range parsed(s, in) {
		if m.Record.suspect {
			suspects = append(suspects, m.Record.MessageId)
		}
	}
	if want := []string{"a1", "c1"}; !slices.Equal(suspects, want) { // a classic queue does not count deliveries
		t.Errorf("suspects are %q, want %q", suspects, want)
	}
	s.finishTest()
}

// A suspect gives up its turn when the gate closes, so that the client's other queues need not wait.
func TestSuspectBehindAClosedGateReturnsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, nil)
		s, in := f.source(true, "aw")
		m := parsed(s, in)[0]
		f.r.sub.Gate.Close()
		s.lane = endedLane{}
		m.Record.hasTurn.Store(true)
		if !f.r.client.turn.Take(t.Context(), &engine.Gate{}) {
			t.Fatal("no turn")
		}
		s.onTurn(m.Record)
		synctest.Wait()
		if !f.r.client.turn.Begin() {
			t.Error("it keeps the turn")
		}
		s.finishTest()
	})
}

// endedLane is a lane that has ended.
type endedLane struct{ driver.Lane[*delivery] }

func (endedLane) Post(func()) bool { return false }

// A late answer of one attempt once counted for the next attempt in place after a timeout.
func TestLateAnswerDoesNotCountForTheNextAttempt(t *testing.T) {
	for name, late := range map[string]func(amqp091.Delivery) error{
		"nack":   func(d amqp091.Delivery) error { return d.Nack(false, true) },
		"reject": func(d amqp091.Delivery) error { return d.Reject(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan redeliver.Event, 1)
				var first amqp091.Delivery
				f := newNativeOrderedQueue(t, Config{
					Policy: redeliver.Policy{Order: redeliver.OrderBlocking, Timeout: time.Second, Backoff: redeliver.Fixed(10 * time.Millisecond)},
					Sink: redeliver.SinkFunc(func(e redeliver.Event) {
						switch e.(type) {
						case redeliver.Committed, redeliver.DeadLettered:
							ended <- e
						}
					}),
				}, func(_ *orderedQueue, ctx context.Context, d amqp091.Delivery) error {
					if st, _ := redeliver.FromContext(ctx); st.Attempt() > 1 {
						return late(first)
					}
					first = d
					<-ctx.Done()
					return nil
				})
				s, in := f.source(false, "m")
				end := f.run(t.Context(), s, in)
				e := <-ended
				if c, ok := e.(redeliver.Committed); !ok || c.State.Attempts != 1 {
					t.Errorf("it ended in a %T, %+v", e, e)
				}
				close(in)
				_ = f.ended(end)
			})
		})
	}
}

// A source settles and returns only deliveries of its own channel.
func TestEndedChannelSettlesNothing(t *testing.T) {
	over := make(chan struct{})
	f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderNone}}, func([]string, redeliver.State) error { <-over; return nil })
	s, in := f.source(false, "a", "b")
	end := f.run(t.Context(), s, in)
	f.await(func(ran []string) bool { return len(ran) == 2 })
	_ = s.ch.Close()
	if err := f.ended(end); !errors.Is(err, errLost) {
		t.Errorf("it ended with %v", err)
	}
	close(over)
	close(in)
	if n := s.acks.pending(); n > 0 {
		t.Errorf("%d are settled", n)
	}
}

// While nothing may begin, a source returns the messages that have not run, once, and then does not consume, because
// the broker counts each return. If only probes may begin, or the queue would expire, it consumes one message.
func TestPausedSourceDoesNotConsume(t *testing.T) {
	for name, row := range map[string]struct {
		expires   bool
		window    int64 // the last requested window while it is paused
		consumers int   // consumers after the first, at the end
	}{
		"paused":               {false, 0, 1}, // StopConsumer requests 0
		"the queue may expire": {true, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				f := newOrderedQueue(t, Config{MaxInFlight: 1, Policy: redeliver.Policy{Order: redeliver.OrderNone, Timeout: redeliver.NoTimeout}}, func([]string, redeliver.State) error { <-over; return nil })
				f.r.expires.Store(row.expires)
				ctx, stop := context.WithCancel(t.Context())
				s, in := f.source(false, "a", "b", "c")
				f.server.Prefetch.Store(50)
				end := f.run(ctx, s, in)
				<-time.After(time.Minute)
				if n := f.server.Cancels.Load(); n != 0 {
					t.Errorf("%d consumers are cancelled behind a slow handler", n)
				}
				f.r.sub.Gate.Close()
				<-time.After(5 * time.Second)
				f.r.sub.Gate.Open() // the pause was short
				<-time.After(time.Minute)
				if n := f.server.Cancels.Load(); n != 0 {
					t.Errorf("%d consumers are cancelled after a pause of 5 s", n)
				}
				f.r.sub.Gate.Close()
				<-time.After(15 * time.Second)
				close(in) // the client does it when the consumer has ended
				<-time.After(10 * time.Minute)
				if c, n, w := f.server.Cancels.Load(), f.server.Nacks.Load(), f.server.Prefetch.Load(); c != 1 || n != 2 || w != row.window {
					t.Errorf("%d consumers are cancelled, %d messages are returned, the window is %d, want 1, 2 and %d", c, n, w, row.window)
				}
				f.r.sub.Gate.Open()
				<-time.After(2 * time.Second)
				if w, n := f.server.Prefetch.Load(), len(f.server.Read); w != 50 || n != row.consumers {
					t.Errorf("it continues with a window of %d, and has had %d more consumers", w, n)
				}
				close(over)
				stop()
				_ = f.ended(end)
			})
		})
	}
}

// A queue without a majority does not answer the end of a consumer. The lane once waited for that answer, so nothing
// was acked, and a shutdown did not begin.
func TestALaneContinuesWhileTheBrokerDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		f := newOrderedQueue(t, Config{MaxInFlight: 1, DrainTimeout: time.Second, Policy: redeliver.Policy{Order: redeliver.OrderNone, Timeout: redeliver.NoTimeout}}, func([]string, redeliver.State) error { <-over; return nil })
		ctx, stop := context.WithCancel(t.Context())
		s, in := f.source(false, "a", "b")
		end := f.run(ctx, s, in)
		<-time.After(time.Minute)
		f.server.Mute.Store(true)
		f.r.sub.Gate.Close()
		<-time.After(time.Minute)
		f.r.sub.Gate.Open()
		<-time.After(time.Minute)
		close(over)
		<-time.After(time.Second)
		if c, n := f.server.Cancels.Load(), f.server.Acks.Load(); c != 1 || n == 0 {
			t.Errorf("%d consumers are cancelled, and %d acks were sent, want 1 and some", c, n)
		}
		stop()
		select {
		case err := <-end:
			t.Logf("it ended with %v", err)
		case <-time.After(time.Minute):
			t.Error("the source has not ended a minute after the shutdown began")
		}
		close(in)
		_ = f.server.Remote.Close() // the call in flight ends with the connection
	})
}

// A connection that was lost in a pause once left the subscription disconnected until the end of the pause, because
// nothing is read in a pause.
func TestASubscriptionIsConnectedInAPause(t *testing.T) {
	t.Parallel()
	var changes []redeliver.Change
	f := newOrderedQueue(t, Config{Sink: redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			changes = append(changes, c.Change)
		}
	})}, nil)
	f.r.disconnected("orders", errFull)
	f.r.reachable()
	f.r.reachable()
	if want := []redeliver.Change{redeliver.ChangeDisconnected, redeliver.ChangeConsuming}; !slices.Equal(changes, want) {
		t.Errorf("reported %q, want %q", changes, want)
	}
}

// postOnly is a lane that runs no posted function.
type postOnly struct{ driver.Lane[*delivery] }

func (postOnly) Post(func()) bool { return true }

// A shutdown that began right after a change of the window once locked the channel first. Both then waited for each
// other.
func TestStopWaitsForAChangeOfTheWindow(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderNone}}, nil)
			s, in := f.source(false)
			s.lane = postOnly{}
			go s.intake.run(in)
			s.intake.change(0)
			stopped := s.Stop()
			synctest.Wait()
			if n := f.server.Cancels.Load(); n != 1 {
				t.Errorf("%d consumers are cancelled, want 1", n)
			}
			close(in)
			select {
			case <-stopped:
			case <-time.After(time.Minute):
				t.Error("it has not stopped")
			}
			_ = f.server.Remote.Close()
		})
		if t.Failed() {
			return
		}
	}
}

// Settled messages are acked before a suspect runs. Their acks once waited for a batch, and the messages came back when
// the suspect killed the process.
func TestAcksDoNotWaitForASuspect(t *testing.T) {
	for name, row := range map[string]struct {
		suspect bool
		tell    func(s *source)
		acks    int64
	}{
		"settled before the suspect has its turn":      {true, func(s *source) { s.Accept(0) }, 1},
		"settled while the suspect waits for its turn": {true, func(s *source) { s.Commit() }, 1},
		"a closed gate":             {false, func(s *source) { s.Accept(0) }, 0},
		"settled without a suspect": {false, func(s *source) { s.Commit() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, nil)
			s, in := f.source(false, "a1", "b1")
			s.ackTimer = time.NewTimer(time.Hour)
			all := parsed(s, in)
			s.Settle(all[1]) // behind an open one
			if row.suspect && !f.r.client.turn.Take(t.Context(), &f.r.sub.Gate) {
				t.Fatal("the turn is not free")
			}
			row.tell(s)
			s.finishTest() // the server answers after the ack
			if n := f.server.Acks.Load(); n != row.acks {
				t.Errorf("%d acks were sent, want %d", n, row.acks)
			}
		})
	}
}

// A queue without a majority does not answer. Close once waited for it until the broker gave up, for minutes.
func TestFlushEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOrderedQueue(t, Config{}, nil)
		s, in := f.source(false, "a")
		s.Settle(parsed(s, in)[0])
		f.server.Mute.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Flush(ctx)
		if acks := f.server.Acks.Load(); acks != 1 {
			t.Errorf("%d acks, want 1", acks)
		}
		_ = f.server.Remote.Close() // the call in flight ends with the connection
	})
}

// The engine frees settled messages earlier if it knows their size.
func TestTheSizeOfAMessageIsThatOfItsBody(t *testing.T) {
	f := newOrderedQueue(t, Config{}, func([]string, redeliver.State) error { return nil })
	s, _ := f.source(false)
	m := &driver.Message[*delivery]{Record: new(slab).delivery(&amqp091.Delivery{MessageId: "a", Body: make([]byte, 5000)})}
	if err := s.Parse(m); err != nil || m.Size != 5000 {
		t.Errorf("a size of %d, want 5000: %v", m.Size, err)
	}
}
