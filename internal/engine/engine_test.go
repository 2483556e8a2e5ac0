package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is a message of the broker in memory.
type record struct {
	id    string
	key   string
	state *redeliver.State // of one that waits; nil for a first delivery
	body  []byte
	// created and expires are the times of a first delivery.
	created, expires time.Time
	// replayed reports whether the message came with a state without attempts.
	replayed bool
}

// broker is one queue in memory, with its level and its DLQ. It is the source, the codec and the store.
type broker struct {
	sub       *engine.Subscription
	in        chan *record
	lost      chan struct{}
	lane      driver.Lane[*record]
	mu        sync.Mutex
	settled   []string
	returned  []string
	dead      map[string]redeliver.State
	begun     time.Time
	accepted  int
	flushed   bool
	refuse    func(to driver.Place, r *record) error
	accepts   int  // calls of Accept
	block     bool // messages with a key keep their places
	stays     bool // writes to a level answer ErrStay
	hops      bool // waiting messages only hop
	publishes bool // waiting messages are delayed publishes
	hangs     chan error
	alone     func(id string) bool // reports whether a message runs alone; nil for none
	toDLQ     error                // why all messages go to the DLQ at once, nil for not
	displaced bool                 // all messages have lost their places
	headers   message.Metadata     // of all messages

	parsed        []*driver.Message[*record]
	settledBefore bool            // what Parse says of all
	flush         func()          // what Flush does
	own           context.Context // of the messages that Message returns; nil for none
	values        context.Context // of the handlers' contexts
}

func newBroker(p redeliver.Policy) *broker {
	if p.Outage == (redeliver.Outage{}) { // most tests fail more messages than an outage needs
		p.Outage.Off = true
	}
	b := &broker{in: make(chan *record, 10_000), dead: make(map[string]redeliver.State), begun: time.Now(), lost: make(chan struct{}), values: context.Background()}
	b.sub = &engine.Subscription{Origin: "orders", Group: "billing", Policy: p.WithDefaults(), MaxInFlight: 10, MaxRetriesInFlight: 10}
	return b
}

func (b *broker) publish(ids ...string) {
	for _, id := range ids {
		b.in <- &record{id: id}
	}
}

func (b *broker) Messages() <-chan *record { return b.in }
func (b *broker) Lost() <-chan struct{}    { return b.lost }
func (b *broker) Accept(n int)             { b.accepted, b.accepts = n, b.accepts+1 }
func (b *broker) Commit()                  {}
func (b *broker) Flush(context.Context) {
	b.flushed = true
	if b.flush != nil {
		b.flush()
	}
}
func (b *broker) Stop() <-chan struct{} { return nil }

func (b *broker) Parse(m *driver.Message[*record]) error {
	if b.settledBefore {
		return driver.ErrSettled
	}
	b.mu.Lock()
	b.parsed = append(b.parsed, m)
	b.mu.Unlock()
	if k := m.Record.key; k != "" {
		for _, c := range k {
			m.Key = m.Key*31 + uint64(c)
		}
	}
	m.Returned = m.Record.replayed
	m.Displaced = b.displaced
	if b.toDLQ != nil {
		m.Step, m.Err = driver.StepDeadLetter, b.toDLQ
	}
	m.Alone = b.alone != nil && b.alone(m.Record.id)
	if st := m.Record.state; st != nil {
		m.Retry, m.Until, m.InPlace = true, st.Due, b.block
		if b.hops {
			m.Step, m.Until = driver.StepHop, time.Time{}
		}
		if b.publishes {
			m.Step = driver.StepPublish
		}
	}
	return nil
}

func (b *broker) Settle(m *driver.Message[*record]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = append(b.settled, m.Record.id)
}

func (b *broker) Return(m *driver.Message[*record], wait time.Duration, runs bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned = append(b.returned, fmt.Sprintf("%s %v %v", m.Record.id, wait.Round(time.Millisecond), runs))
}

func (b *broker) message(m *driver.Message[*record]) (*message.Message, error) {
	if string(m.Record.body) == "garbage" {
		return nil, errors.New("garbage")
	}
	msg := message.NewMessage(m.Record.id, m.Record.body)
	for k, v := range b.headers {
		msg.Metadata.Set(k, v)
	}
	if b.own != nil {
		msg.SetContext(b.own)
	}
	return msg, nil
}
func (b *broker) Key(m *driver.Message[*record]) []byte {
	if m.Record.key == "" {
		return nil
	}
	return []byte(m.Record.key)
}
func (b *broker) Body(m *driver.Message[*record]) []byte { return m.Record.body }
func (b *broker) Headers(*driver.Message[*record]) redeliver.Headers {
	if b.headers != nil {
		return b.headers
	}
	return message.Metadata{}
}
func (b *broker) Age(m *driver.Message[*record]) (st *redeliver.State, created, expires time.Time) {
	return m.Record.state, m.Record.created, m.Record.expires
}
func (b *broker) State(m *driver.Message[*record], st *redeliver.State) {
	if m.Record.state != nil {
		*st = *m.Record.state
		return
	}
	st.ID, st.Group, st.Origin = m.Record.id, "billing", "orders"
	st.Source.Timestamp, st.Expires = m.Record.created, m.Record.expires
}

func (b *broker) Write(_ context.Context, to driver.Place, m *driver.Message[*record], st *redeliver.State, done driver.Done) {
	b.mu.Lock()
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil {
		if err := refuse(to, m.Record); err != nil {
			done.Confirmed("refused", err)
			return
		}
	}
	switch {
	case b.hangs != nil:
		go func() {
			done.Unanswered("orders.billing.retry", context.DeadlineExceeded)
			done.Confirmed("orders.billing.retry", <-b.hangs)
		}()
	case to == driver.PlaceDLQ:
		b.mu.Lock()
		b.dead[m.Record.id] = *st
		b.mu.Unlock()
		done.Confirmed("orders.billing.dlq", nil)
	case b.stays:
		done.Confirmed("orders", driver.ErrStay)
	default:
		kept := *st
		b.in <- &record{id: m.Record.id, key: m.Record.key, body: m.Record.body, state: &kept}
		done.Confirmed("orders.billing.retry", nil)
	}
}

// run runs an engine over the broker until the test ends, or stop is called.
func (b *broker) run(t *testing.T, opt engine.Options[*record], lane engine.LaneOptions[*record]) (stop func()) {
	t.Helper()
	if opt.Sub, opt.Codec = b.sub, b; opt.Store == nil {
		opt.Store = b
	}
	e := engine.New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lane.DrainTimeout == 0 {
			lane.DrainTimeout = 10 * time.Second
		}
		e.RunLane(ctx, b.values, b, lane, func(l driver.Lane[*record]) { b.lane = l })
		e.Close()
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func (b *broker) all() (settled []string, dead map[string]redeliver.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.settled), maps.Clone(b.dead)
}

func handle(f func(ctx context.Context, r *record) error) engine.Options[*record] {
	return engine.Options[*record]{Handle: f}
}

func TestAMessageIsRetriedAndEndsInTheDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Second, 2*time.Second, 4*time.Second)})
		var at []time.Duration
		b.run(t, handle(func(ctx context.Context, _ *record) error {
			at = append(at, time.Since(b.begun))
			st, _ := redeliver.FromContext(ctx)
			if st.Attempt() != len(at) {
				t.Errorf("attempt %d, want %d", st.Attempt(), len(at))
			}
			return errors.New("no bank")
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Minute)
		synctest.Wait()
		if want := []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("attempts at %v, want %v", at, want)
		}
		settled, dead := b.all()
		if st := dead["a"]; st.Reason != redeliver.ReasonExhausted || st.Attempts != 4 {
			t.Errorf("dead: %+v", dead)
		}
		if len(settled) != 4 {
			t.Errorf("settled %v", settled)
		}
	})
}

func TestMessagesOfOneKeyRunOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var mu sync.Mutex
		var order []string
		now, most := 0, 0
		b.run(t, handle(func(_ context.Context, r *record) error {
			mu.Lock()
			order = append(order, r.id)
			now++
			most = max(most, now)
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}), engine.LaneOptions[*record]{})
		for i := range 20 {
			b.in <- &record{id: fmt.Sprint(i), key: "k"}
		}
		<-time.After(19*time.Second + 500*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 || len(order) != 20 || !slices.IsSortedFunc(order, func(a, b string) int { return len(a)*100 + int(a[0]) - len(b)*100 - int(b[0]) }) {
			t.Errorf("%d at once, in the order %v", most, order)
		}
	})
}

func TestAMessageThatWaitsInPlaceHoldsUpItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(10 * time.Second)})
		b.stays = true
		var mu sync.Mutex
		var ran []string
		b.run(t, handle(func(_ context.Context, r *record) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, fmt.Sprintf("%s@%v", r.id, time.Since(b.begun)))
			if r.id == "a" {
				return errors.New("no")
			}
			return nil
		}), engine.LaneOptions[*record]{})
		b.in <- &record{id: "a", key: "k"}
		b.in <- &record{id: "b", key: "k"}
		b.in <- &record{id: "c", key: "other"}
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(ran)
		if want := []string{"a@0s", "a@10s", "a@20s", "b@20s", "c@0s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}

// refuseUntilUp makes the broker refuse all writes until up is set. It returns the changes of the subscription, too.
func (b *broker) refuseUntilUp() (changes *[]redeliver.Change, up *atomic.Bool) {
	changes, up = new([]redeliver.Change), new(atomic.Bool)
	b.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			*changes = append(*changes, c.Change)
		}
	})
	b.refuse = func(driver.Place, *record) error {
		if !up.Load() {
			return errors.New("no broker")
		}
		return nil
	}
	return changes, up
}

func TestAWriteThatFailsPausesTheIntakeAndIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: redeliver.NoRetries})
		changes, up := b.refuseUntilUp()
		var runs atomic.Int64
		b.run(t, handle(func(context.Context, *record) error { runs.Add(1); return errors.New("no") }), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		b.publish("b")
		<-time.After(time.Second)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d attempts while the intake is paused", n)
		}
		up.Store(true)
		<-time.After(time.Minute)
		synctest.Wait()
		if _, dead := b.all(); len(dead) != 2 || runs.Load() != 2 {
			t.Errorf("%d attempts, in the DLQ %v", runs.Load(), dead)
		}
		if want := []redeliver.Change{redeliver.ChangeIntakePaused, redeliver.ChangeIntakeResumed}; !slices.Equal(*changes, want) {
			t.Errorf("changes %v", *changes)
		}
	})
}

func TestADrainReturnsUnrunMessagesLastFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.sub.MaxInFlight = 1
		stop := b.run(t, handle(func(context.Context, *record) error { <-time.After(3 * time.Second); return nil }), engine.LaneOptions[*record]{})
		due := redeliver.State{ID: "w", Attempts: 1, Due: time.Now().Add(time.Minute)}
		b.publish("a", "b", "c")
		b.in <- &record{id: "w", state: &due}
		<-time.After(time.Second)
		stop()
		if took := time.Since(b.begun); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		settled, _ := b.all()
		if !slices.Equal(settled, []string{"a"}) || !slices.Equal(b.returned, []string{"w 59s false", "c 0s false", "b 0s false"}) || !b.flushed {
			t.Errorf("settled %v, returned %q, flushed %v", settled, b.returned, b.flushed)
		}
	})
}

func TestAHandlerThatOutlivesTheDrainIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var cause error
		stop := b.run(t, handle(func(ctx context.Context, _ *record) error { <-ctx.Done(); cause = context.Cause(ctx); return ctx.Err() }), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		stop()
		synctest.Wait()
		if !errors.Is(cause, engine.ErrDrained) || len(b.settled) > 0 || !slices.Equal(b.returned, []string{"a 0s true"}) {
			t.Errorf("cause %v, settled %v, returned %v", cause, b.settled, b.returned)
		}
	})
}

func TestATimeoutMovesTheMessageOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: redeliver.NoRetries, Timeout: time.Second})
		var events []string
		b.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) { events = append(events, fmt.Sprintf("%T", e)) })
		b.run(t, handle(func(ctx context.Context, _ *record) error { <-time.After(5 * time.Second); return ctx.Err() }), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(1500 * time.Millisecond)
		synctest.Wait()
		if _, dead := b.all(); dead["a"].Reason != redeliver.ReasonTimeout {
			t.Errorf("dead %v", dead)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if want := []string{"redeliver.Attempted", "redeliver.DeadLettered", "redeliver.HandlerStuck", "redeliver.LateAnswer"}; !slices.Equal(events, want) {
			t.Errorf("events %v", events)
		}
	})
}

func TestAWatermillMessageIsSettledWhenItIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)})
		router := binding.New(b.message)
		out := router.Messages()
		b.run(t, engine.Options[*record]{Handler: router}, engine.LaneOptions[*record]{})
		b.publish("a", "b")
		b.in <- &record{id: "c", body: []byte("garbage")}
		x, y := <-out, <-out
		if x.UUID != "a" {
			x, y = y, x
		}
		x.Ack()
		y.Nack()
		again := <-out
		if again.UUID != "b" || time.Since(b.begun) != time.Second {
			t.Errorf("%s after %v", again.UUID, time.Since(b.begun))
		}
		again.Nack()
		synctest.Wait()
		settled, dead := b.all()
		slices.Sort(settled)
		if !slices.Equal(settled, []string{"a", "b", "b", "c"}) || len(dead) != 2 || dead["c"].Reason != redeliver.ReasonUndecodable {
			t.Errorf("settled %v, dead %+v", settled, dead)
		}
		if err := x.Context().Err(); err == nil {
			t.Error("the context of an acked message has not ended")
		}
	})
}

// A handler's context has the values of the message's own context before those of the lane. It ends with the attempt.
func TestAMessageKeepsTheValuesOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key string
		b := newBroker(redeliver.Policy{})
		values := context.WithValue(context.WithValue(context.Background(), key("message"), "lane"), key("lane"), "lane")
		own, cancel := context.WithCancel(context.WithValue(context.Background(), key("message"), "message"))
		b.own = own
		router := binding.New(b.message)
		out := router.Messages()
		b.values = values
		b.run(t, engine.Options[*record]{Handler: router}, engine.LaneOptions[*record]{})
		b.publish("a")
		msg := <-out
		cancel()
		ctx, end := context.WithCancel(msg.Context())
		defer end()
		if m, l := ctx.Value(key("message")), ctx.Value(key("lane")); m != "message" || l != "lane" || ctx.Err() != nil {
			t.Errorf("the context has %v and %v and the end %v", m, l, ctx.Err())
		}
		if st, _ := redeliver.FromContext(ctx); st.ID != "a" || engine.FromContext(ctx) == nil {
			t.Errorf("the context has the state %+v", st)
		}
		msg.Ack()
		<-ctx.Done()
	})
}

func TestABatchAnswersForEachOfItsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)})
		var batches []string
		opt := engine.Options[*record]{BatchConfig: redeliver.BatchConfig{Size: 3, Timeout: 5 * time.Second}.WithDefaults(), Batch: func(_ *engine.Batch, all []*engine.BatchMember[*record]) error {
			s := ""
			for _, m := range all {
				s += m.Record.id
				if m.Record.id == "b" {
					m.Answer(redeliver.Reject("bad"))
				}
			}
			batches = append(batches, s)
			return nil
		}}
		b.run(t, opt, engine.LaneOptions[*record]{})
		for _, id := range []string{"a", "b", "c", "d"} { // in this order: they wait for each other's batch
			b.publish(id)
			synctest.Wait()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		settled, dead := b.all()
		if !slices.Equal(batches, []string{"abc", "d"}) || len(settled) != 4 || dead["b"].Reason != redeliver.ReasonRejected {
			t.Errorf("batches %v, settled %v, dead %v", batches, settled, dead)
		}
	})
}

// A message that comes back to wait in place while another message of its key runs begins when it is due, before those behind it.
func TestAMessageThatWaitsInPlaceComesBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.block = true
		var mu sync.Mutex
		var ran []string
		b.run(t, handle(func(_ context.Context, r *record) error {
			mu.Lock()
			ran = append(ran, fmt.Sprintf("%s@%v", r.id, time.Since(b.begun)))
			mu.Unlock()
			<-time.After(time.Second)
			return nil
		}), engine.LaneOptions[*record]{})
		b.in <- &record{id: "a", key: "k"}
		b.in <- &record{id: "b", key: "k", state: &redeliver.State{ID: "b", Attempts: 1, Due: b.begun.Add(500 * time.Millisecond)}}
		b.in <- &record{id: "c", key: "k", state: &redeliver.State{ID: "c", Attempts: 1, Due: b.begun.Add(10 * time.Second)}}
		b.in <- &record{id: "d", key: "k"}
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"a@0s", "b@1s", "c@10s", "d@11s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}

// A lane reads messages of other keys while those of one key wait.
func TestALaneReadsOnWhileAKeyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		gate := make(chan struct{})
		b.run(t, handle(func(context.Context, *record) error { <-gate; return nil }), engine.LaneOptions[*record]{MaxAhead: 5, MaxWaiting: 100})
		for i := range 20 {
			b.in <- &record{id: fmt.Sprint(i), key: "k"}
		}
		synctest.Wait()
		if b.accepted != 4 {
			t.Errorf("Accept(%d) while one message runs, want 4", b.accepted)
		}
		close(gate)
		synctest.Wait()
		if settled, _ := b.all(); len(settled) != 20 || b.accepted != 5 {
			t.Errorf("%d messages are settled, and Accept(%d)", len(settled), b.accepted)
		}
	})
}

// While a suspect has the turn, or waits for it, other lanes read nothing.
func TestALaneReadsNothingWhileASuspectRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.sub.Turn = engine.NewTurn()
		b.run(t, handle(func(context.Context, *record) error { return nil }), engine.LaneOptions[*record]{MaxAhead: 5})
		synctest.Wait()
		if !b.sub.Turn.Take(t.Context(), &b.sub.Gate) {
			t.Fatal("no turn")
		}
		synctest.Wait()
		if b.accepted != 0 {
			t.Errorf("Accept(%d) while a suspect runs, want none", b.accepted)
		}
		b.sub.Turn.Give()
		synctest.Wait()
		if b.accepted != 5 {
			t.Errorf("Accept(%d) after the suspect, want some", b.accepted)
		}
	})
}

// A message that is only written needs no slot.
func TestAMessageThatIsOnlyWrittenWaitsForNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.hops, b.sub.MaxRetriesInFlight = true, 1
		over := make(chan struct{})
		defer close(over)
		b.refuse = func(to driver.Place, _ *record) error {
			if to == driver.PlaceLevel { // otherwise it would hop forever
				return driver.ErrRefused
			}
			return nil
		}
		b.run(t, handle(func(context.Context, *record) error { <-over; return nil }), engine.LaneOptions[*record]{})
		for range 10 {
			b.publish("a")
		}
		b.in <- &record{id: "w", state: &redeliver.State{ID: "w", Attempts: 1}}
		synctest.Wait()
		if settled, dead := b.all(); !slices.Equal(settled, []string{"w"}) || len(dead) != 1 {
			t.Errorf("settled %v, dead %v", settled, dead)
		}
	})
}

// ReturnUnrun returns the messages that have not begun, which the source may read again. Running messages continue.
func TestASourceGetsMessagesBackThatHaveNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.sub.MaxInFlight = 1
		b.run(t, handle(func(context.Context, *record) error { <-time.After(3 * time.Second); return nil }), engine.LaneOptions[*record]{MaxWaiting: 2})
		b.publish("a", "b", "c")
		for _, id := range []string{"v", "w"} {
			b.in <- &record{id: id, state: &redeliver.State{ID: id, Attempts: 1, Due: time.Now().Add(time.Hour)}}
		}
		synctest.Wait()
		if b.accepted != 0 {
			t.Errorf("Accept(%d) while MaxWaiting messages wait", b.accepted)
		}
		b.lane.Post(func() {
			b.lane.ReturnUnrun(func(m *driver.Message[*record]) bool { return m.Record.id != "b" })
		})
		<-time.After(4 * time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.Equal(b.returned, []string{"w 1h0m0s false", "v 1h0m0s false", "c 0s false"}) || !slices.Equal(b.settled, []string{"a"}) || b.accepted == 0 {
			t.Errorf("returned %q, settled %v, Accept(%d)", b.returned, b.settled, b.accepted)
		}
	})
}

// recordingGater records the calls of End and EndLate.
type recordingGater struct {
	mu   sync.Mutex
	ends []string
}

func (g *recordingGater) Begin(*driver.Message[*record]) engine.Admission { return engine.Begins }
func (g *recordingGater) HandlerEnded(*driver.Message[*record])           {}
func (g *recordingGater) End(m *driver.Message[*record], _ engine.Ending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = append(g.ends, m.Record.id)
}

func (g *recordingGater) EndLate(m *driver.Message[*record]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends = append(g.ends, m.Record.id+" late")
}

// EndLate is called for a message that outlives its lane, and keeps its slot until then.
func TestEndLateIsCalledAfterTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		over := make(chan struct{})
		g := &recordingGater{}
		opt := handle(func(_ context.Context, r *record) error {
			if r.id == "slow" {
				<-over
			}
			return nil
		})
		opt.Sub, opt.Codec, opt.Store = b.sub, b, b
		e := engine.New(opt)
		defer e.Close()
		b.sub.MaxInFlight = 1
		lane := func() (ended chan struct{}) {
			b.lost, ended = make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				e.RunLane(t.Context(), context.Background(), b, engine.LaneOptions[*record]{DrainTimeout: time.Second, Gaters: []engine.Gater[*record]{g}}, nil)
			}()
			return ended
		}
		first := lane()
		for range 9 { // nine of ten slots
			b.publish("slow")
		}
		b.publish("quick")
		synctest.Wait()
		b.publish("slow")
		synctest.Wait()
		close(b.lost)
		<-first
		second := lane()
		b.publish("beside")
		synctest.Wait()
		if settled, _ := b.all(); !slices.Equal(settled, []string{"quick"}) || !slices.Equal(g.ends, []string{"quick"}) {
			t.Errorf("settled %v while the handlers of a lost lane hold all slots, ends %q", settled, g.ends)
		}
		close(over)
		synctest.Wait()
		if settled, _ := b.all(); !slices.Equal(settled, []string{"quick", "beside"}) || len(g.ends) != 12 || !slices.Contains(g.ends, "slow late") {
			t.Errorf("settled %v, ends %q", settled, g.ends)
		}
		close(b.lost)
		<-second
	})
}

// A write that the broker does not answer pauses the intake, and is not repeated.
func TestAWriteWithoutAnAnswerPausesTheIntake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.hangs = make(chan error)
		var events []string
		b.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.SubscriptionChanged:
				events = append(events, string(e.Change))
			case redeliver.PublishFailed:
				events = append(events, fmt.Sprintf("try %d failed, %v", e.Try, e.Err))
			}
		})
		b.run(t, handle(func(context.Context, *record) error { return errors.New("no") }), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Hour)
		b.publish("b")
		synctest.Wait()
		b.hangs <- nil
		synctest.Wait()
		want := []string{"intake paused", "try 1 failed, context deadline exceeded", "intake resumed"}
		if settled, _ := b.all(); !slices.Equal(settled, []string{"a"}) || len(events) < 3 || !slices.Equal(events[:3], want) {
			t.Errorf("settled %v, events %q", settled, events)
		}
		b.hangs <- nil
	})
}

// funcGater is a gater whose methods call functions of the test.
type funcGater struct {
	begin        func(m *driver.Message[*record]) engine.Admission
	handlerEnded func(m *driver.Message[*record])
	end          func(m *driver.Message[*record], how engine.Ending)
}

func (g *funcGater) Begin(m *driver.Message[*record]) engine.Admission { return g.begin(m) }
func (g *funcGater) HandlerEnded(m *driver.Message[*record]) {
	if g.handlerEnded != nil {
		g.handlerEnded(m)
	}
}

func (g *funcGater) End(m *driver.Message[*record], how engine.Ending) {
	if g.end != nil {
		g.end(m, how)
	}
}

// A gater may send a message elsewhere, hold it, settle it or send it to the DLQ. Its End is called for each message
// that it let begin.
func TestAGaterDecidesAndGetsTheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)})
		var ran, ends []string
		due := b.begun.Add(10 * time.Second)
		asked := make(map[string]int)
		g := &funcGater{
			begin: func(m *driver.Message[*record]) engine.Admission {
				asked[m.Record.id]++
				switch id := m.Record.id; {
				case id == "parked" && m.Record.state == nil:
					m.Step, m.State = driver.StepHop, &redeliver.State{ID: id, Due: due}
				case id == "held" && asked[id] == 1:
					m.Until = due
					return engine.Later
				case id == "copy":
					return engine.Outdated
				case id == "cancelled":
					m.Step, m.Err = driver.StepDeadLetter, redeliver.Permanent(errors.New("cancelled"))
				}
				return engine.Begins
			},
			end: func(m *driver.Message[*record], how engine.Ending) {
				s := fmt.Sprintf("%s %d", m.Record.id, how.Kind)
				if how.State != nil {
					s += fmt.Sprintf(" %d", how.State.Attempts)
				}
				ends = append(ends, s)
			},
		}
		b.run(t, handle(func(_ context.Context, r *record) error {
			ran = append(ran, fmt.Sprintf("%s@%v", r.id, time.Since(b.begun)))
			if r.id == "fails" {
				return errors.New("no")
			}
			return nil
		}), engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{g}})
		for _, id := range []string{"parked", "held", "copy", "cancelled", "fails"} {
			b.publish(id)
			synctest.Wait()
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if want := []string{"fails@0s", "fails@1s", "held@10s", "parked@10s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %q, want %q", ran, want)
		}
		slices.Sort(ends)
		want := []string{
			fmt.Sprintf("cancelled %d 1", engine.DeadLettered), fmt.Sprintf("fails %d 1", engine.Moved), fmt.Sprintf("fails %d 2", engine.DeadLettered),
			fmt.Sprintf("held %d", engine.Acked), fmt.Sprintf("parked %d", engine.Acked), fmt.Sprintf("parked %d 0", engine.Moved),
		}
		slices.Sort(want)
		if !slices.Equal(ends, want) {
			t.Errorf("ends %q, want %q", ends, want)
		}
		if settled, dead := b.all(); len(settled) != 7 || len(dead) != 2 {
			t.Errorf("settled %q, dead %v", settled, dead)
		}
	})
}

// A message that a gater has set Alone needs no turn and no slot. HandlerEnded is called when its handler has returned,
// before its copy is written.
func TestAGaterMakesAMessageRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{MaxRetries: redeliver.NoRetries})
		b.sub.Turn, b.sub.MaxInFlight = engine.NewTurn(), 1
		held, returnedAt := false, time.Duration(0)
		b.refuse = func(driver.Place, *record) error {
			if time.Since(b.begun) < 10*time.Second {
				return errors.New("no broker")
			}
			return nil
		}
		g := &funcGater{
			begin: func(m *driver.Message[*record]) engine.Admission {
				if m.Record.id != "suspect" || held {
					m.Alone = held
					return engine.Begins
				}
				go func() {
					b.sub.Turn.Take(t.Context(), &b.sub.Gate)
					b.lane.Post(func() { held = true })
				}()
				return engine.NotYet
			},
			handlerEnded: func(*driver.Message[*record]) { returnedAt = time.Since(b.begun); b.sub.Turn.Give() },
		}
		b.run(t, handle(func(_ context.Context, r *record) error {
			<-time.After(time.Second)
			if r.id == "suspect" {
				return errors.New("no")
			}
			return nil
		}), engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{g}})
		b.publish("suspect")
		<-time.After(time.Minute)
		synctest.Wait()
		if settled, _ := b.all(); returnedAt != time.Second || len(settled) != 1 {
			t.Errorf("HandlerEnded was called after %v, settled %v", returnedAt, settled)
		}
	})
}

// Revise makes waiting messages due at once.
func TestASourceRevisesWaitingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		var ran []string
		b.run(t, handle(func(_ context.Context, r *record) error {
			ran = append(ran, fmt.Sprintf("%s@%v", r.id, time.Since(b.begun)))
			return nil
		}), engine.LaneOptions[*record]{})
		synctest.Wait()
		for _, id := range []string{"a", "b"} {
			b.in <- &record{id: id, state: &redeliver.State{ID: id, Attempts: 1, Due: b.begun.Add(time.Hour)}}
		}
		<-time.After(time.Second)
		b.lane.Post(func() {
			b.lane.Revise(func(m *driver.Message[*record]) {
				if m.Record.id == "b" {
					m.Until = time.Now()
				}
			})
		})
		synctest.Wait()
		if want := []string{"b@1s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}

// A message of an exclusive lane begins although the gate has closed: the other messages of the client wait for it.
func TestAnExclusiveLaneContinuesBehindAClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.run(t, handle(func(context.Context, *record) error { return nil }), engine.LaneOptions[*record]{Exclusive: true})
		b.sub.Gate.Close()
		b.publish("suspect")
		synctest.Wait()
		if settled, _ := b.all(); len(settled) != 1 {
			t.Errorf("settled %v", settled)
		}
		b.sub.Gate.Open()
	})
}

// A suspect begins before the messages that its turn holds back, and before a message that waits for a slot.
func TestASuspectBeginsBeforeMessagesThatItHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{})
		b.sub.Turn = engine.NewTurn()
		var mu sync.Mutex
		var ran []string
		asked, held := 0, false
		g := &funcGater{
			begin: func(m *driver.Message[*record]) engine.Admission {
				switch {
				case held:
					return engine.Begins
				case m.Record.id != "suspect":
					return engine.NotYet
				}
				m.Alone = true
				if asked++; asked == 1 {
					go func() {
						b.sub.Turn.Take(t.Context(), &b.sub.Gate)
						b.lane.Post(func() { held = true })
					}()
				}
				return engine.NotYet
			},
			end: func(m *driver.Message[*record], how engine.Ending) {
				if m.Alone && how.Kind == engine.Acked {
					b.sub.Turn.Give()
				}
			},
		}
		b.run(t, handle(func(_ context.Context, r *record) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, fmt.Sprintf("%s@%v", r.id, time.Since(b.begun)))
			return nil
		}), engine.LaneOptions[*record]{Gaters: []engine.Gater[*record]{g}})
		b.publish("a", "b", "suspect")
		<-time.After(time.Minute)
		synctest.Wait()
		slices.Sort(ran)
		if want := []string{"a@0s", "b@0s", "suspect@0s"}; !slices.Equal(ran, want) {
			t.Errorf("ran %v, want %v", ran, want)
		}
	})
}
