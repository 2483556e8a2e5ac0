package amqp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// file is a lane of a queue that keeps its order, to which a test is the broker.
type file struct {
	*testing.T
	r     *reader
	tags  uint64
	slots chan struct{}

	mu   sync.Mutex
	ran  []string
	news chan struct{} // room for one
}

func newFile(t *testing.T, cfg Config, handle func(ran []string, st redeliver.State) error) *file {
	t.Helper()
	f := &file{T: t, news: make(chan struct{}, 1)}
	cfg.Key = func(d amqp.Delivery) string { return d.MessageId[:1] }
	cfg.Sink = redeliver.SinkFunc(func(redeliver.Event) {})
	cfg = cfg.withDefaults()
	l, err := newLayout(&cfg, "orders")
	if err != nil {
		t.Fatal(err)
	}
	f.slots = make(chan struct{}, cfg.MaxInFlight)
	f.r = newReader(context.Background(), &Client{cfg: cfg, turn: delayqueue.NewTurn()}, l)
	f.r.native = newNative(func(ctx context.Context, _ amqp.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		f.mu.Lock()
		f.ran = append(f.ran, st.ID)
		ran := slices.Clone(f.ran)
		f.mu.Unlock()
		select {
		case f.news <- struct{}{}:
		default:
		}
		return handle(ran, st)
	})
	t.Cleanup(f.r.native.close)
	return f
}

// lane makes a lane that has got messages.
func (f *file) lane(redelivered bool, ids ...string) (l *lane, in chan amqp.Delivery) {
	f.Helper()
	in = make(chan amqp.Delivery, 100)
	l = newLane(f.r, laneConfig{kind: mainQueue, queue: "orders", prefetch: 50, slots: f.slots}, newWire(f.T).ch, in)
	for _, id := range ids {
		f.tags++
		in <- amqp.Delivery{MessageId: id, DeliveryTag: f.tags, Redelivered: redelivered, Headers: amqp.Table{"x-delivery-count": int64(0)}}
	}
	return l, in
}

// await returns when ok says so of what ran.
func (f *file) await(ok func(ran []string) bool) {
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

// run runs a lane; its end is what it returns.
func (f *file) run(ctx context.Context, l *lane) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- l.run(ctx) }()
	return ended
}

func (f *file) ended(end <-chan error) error {
	f.Helper()
	select {
	case err := <-end:
		return err
	case <-time.After(time.Minute):
		f.Fatal("the lane has not ended within a minute")
		return nil
	}
}

func TestABlockingQueueRunsOneAfterAnother(t *testing.T) {
	f := newFile(t, Config{Policy: redeliver.Policy{Order: redeliver.Blocking, Backoff: redeliver.Fixed(10 * time.Millisecond)}}, func(_ []string, st redeliver.State) error {
		if st.ID == "b" && st.Attempts < 2 {
			return errFull
		}
		return nil
	})
	l, in := f.lane(false, "a", "b", "c", "d")
	end := f.run(t.Context(), l)
	f.await(func(ran []string) bool { return slices.Contains(ran, "d") })
	close(in)
	_ = f.ended(end)
	if want := []string{"a", "b", "b", "b", "c", "d"}; !slices.Equal(f.ran, want) {
		t.Errorf("ran %q, want %q", f.ran, want)
	}
	if len(f.slots) > 0 {
		t.Errorf("%d slots are left taken", len(f.slots))
	}
}

// The only slot is free while a key waits, so that the others can go on.
func TestAKeyThatWaitsHoldsNoSlot(t *testing.T) {
	others := []string{"b1", "c1", "b2"}
	f := newFile(t, Config{MaxInFlight: 1, Policy: redeliver.Policy{Order: redeliver.PerKey, MaxRetries: 1000, Backoff: redeliver.Fixed(10 * time.Millisecond)}}, func(ran []string, st redeliver.State) error {
		if st.ID == "a1" && slices.ContainsFunc(others, func(id string) bool { return !slices.Contains(ran, id) }) {
			return errFull
		}
		return nil
	})
	l, in := f.lane(false, "a1", "a2", "b1", "c1", "b2")
	end := f.run(t.Context(), l)
	f.await(func(ran []string) bool { return slices.Contains(ran, "a2") })
	close(in)
	_ = f.ended(end)
	if at := slices.Index(f.ran, "a2"); at != len(f.ran)-1 || slices.Index(f.ran, "b1") > slices.Index(f.ran, "b2") {
		t.Errorf("ran %q", f.ran)
	}
	if len(f.slots) > 0 || !f.r.client.turn.Begin() {
		t.Errorf("%d slots are left taken", len(f.slots))
	}
}

// What waits in place does not hold up the end of a subscriber, and is known to the
// process when it comes back.
func TestWhatWaitsInPlaceIsRememberedAtTheEnd(t *testing.T) {
	f := newFile(t, Config{
		DrainTimeout: time.Hour, ConsumerTimeout: 4 * time.Hour, Policy: redeliver.Policy{Order: redeliver.PerKey, Backoff: redeliver.Fixed(2 * time.Hour)},
	}, func([]string, redeliver.State) error { return errFull })
	for name, end := range map[string]func(stop context.CancelFunc, in chan amqp.Delivery){
		"in order": func(stop context.CancelFunc, _ chan amqp.Delivery) { stop() },
		"lost":     func(_ context.CancelFunc, in chan amqp.Delivery) { close(in) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			l, in := f.lane(false, "a1", "a2")
			ended := f.run(ctx, l)
			f.await(func(ran []string) bool { return len(ran) > 0 })
			f.ran = nil
			for deadline := time.Now().Add(time.Minute); l.waiting.count() == 0; { // it fails now
				if time.Now().After(deadline) {
					t.Fatal("it does not wait")
				}
				time.Sleep(time.Millisecond) //nolint:forbidigo // nobody tells when a message has begun to wait
			}
			end(stop, in)
			_ = f.ended(ended)
			again, back := f.lane(true, "a1", "a2")
			again.take(<-back, time.Now())
			again.take(<-back, time.Now())
			due, held := again.hold.Next()
			first := again.acks.oldest
			if !held || first.state == nil || first.state.Attempts != 1 || !due.Equal(first.state.Due) || time.Until(due) < time.Hour {
				t.Errorf("of a1 is known %+v, it is held until %s", first.state, due)
			}
			if second := first.after; second.state != nil || first.behind != second || !again.ready.Empty() {
				t.Errorf("of a2 is known %+v", second.state)
			}
		})
	}
}

// A message that lies behind another for half of the consumer timeout ends the channel.
func TestALaneTires(t *testing.T) {
	f := newFile(t, Config{
		ConsumerTimeout: 2 * time.Second, Policy: redeliver.Policy{Order: redeliver.Blocking, MaxRetries: 60, Timeout: time.Second, Backoff: redeliver.Fixed(20 * time.Millisecond)},
	}, func([]string, redeliver.State) error { return errFull })
	l, _ := f.lane(false, "a", "b")
	if err := f.ended(f.run(t.Context(), l)); !errors.Is(err, errTired) {
		t.Fatalf("the lane ended with %v", err)
	}
	if st := f.r.client.places.Take(spot{"orders", "a"}); st == nil || st.Attempts == 0 {
		t.Errorf("of a is known %+v", st)
	}
	if st := f.r.client.places.Take(spot{"orders", "b"}); st != nil {
		t.Errorf("of b is known %+v", st)
	}
	if slices.Contains(f.ran, "b") {
		t.Errorf("ran %q", f.ran)
	}
}

// What comes by a queue of ours has its key for Policy.Invalid, and stands behind nobody;
// one over which the key function panics has none, and runs.
func TestARetryHasItsKeyForInvalid(t *testing.T) {
	f := newFile(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey, Invalid: func(redeliver.Message) error { return nil }}}, func([]string, redeliver.State) error { return nil })
	for _, kind := range []kind{retryQueue, delayQueue, suspectQueue} {
		l := newLane(f.r, laneConfig{kind: kind, queue: "orders.retry", prefetch: 50, slots: f.slots}, newWire(t).ch, nil)
		for tag, id := range []string{"", "a1", "a2"} {
			l.take(amqp.Delivery{MessageId: id, DeliveryTag: uint64(tag) + 1}, time.Now())
		}
		first := l.acks.oldest
		second := first.after
		if first.rec.MessageKey() != nil || first.rec.unread != nil {
			t.Errorf("%s: the first has the key %q and is %v", kind, first.rec.MessageKey(), first.rec.unread)
		}
		if key := second.rec.MessageKey(); string(key) != "a" || second.behind != nil || l.ready.Len() != 3 {
			t.Errorf("%s: the second has the key %q; %d are ready", kind, key, l.ready.Len())
		}
	}
}

// A key function that panics condemns that message alone.
func TestAKeyThatPanics(t *testing.T) {
	f := newFile(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, func([]string, redeliver.State) error { return nil })
	l, in := f.lane(false, "", "a")
	l.take(<-in, time.Now())
	l.take(<-in, time.Now())
	first := l.acks.oldest
	var panicked *redeliver.PanicError
	if !errors.As(first.rec.unread, &panicked) || first.keyed || !first.after.keyed || l.ready.Len() != 2 {
		t.Errorf("the first is %v, keyed %t; %d are ready", first.rec.unread, first.keyed, l.ready.Len())
	}
}
