package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

// broker is an adapter in memory, with delay topics. It implements driver.Source, driver.Codec and driver.Store.
type broker struct {
	consumer *adapters.Consumer[*record]
	ladder   delayqueue.Ladder
	in       chan *record
	started  bool

	mu        sync.Mutex
	settled   int
	written   []string // where copies were written
	published []string // ids of the messages that were written to the topic
	dead      []redeliver.State
	returned  []string // ids of the messages that were given back
	events    []redeliver.Event
}

// contextKey is the key of a value in the context of Run.
type contextKey struct{}

type record struct {
	id       string
	metadata map[string]string
	written  time.Time
	level    time.Duration
	headers  []driver.Header
}

func newBroker(p redeliver.Policy) *broker {
	return &broker{ladder: delayqueue.NewLadder(p.WithDefaults()), in: make(chan *record, 100)}
}

func (b *broker) config(p redeliver.Policy, handler func(context.Context, *record) error) adapters.Config[*record] {
	return adapters.Config[*record]{Origin: "orders", Group: "billing", Codec: b, Store: b, Handler: handler, Policy: p, Sink: b}
}

// run runs a consumer until the test is done, and closes it.
func (b *broker) run(t *testing.T, cfg adapters.Config[*record], test func()) {
	t.Helper()
	var err error
	if b.consumer, err = adapters.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "kept"))
	var runs sync.WaitGroup
	runs.Go(func() {
		if err := b.consumer.Run(ctx, b); err != nil {
			t.Error(err)
		}
	})
	test()
	cancel()
	runs.Wait()
	for range 2 {
		if err := b.consumer.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := b.consumer.Run(t.Context(), b); err == nil {
		t.Error("a closed consumer runs a source")
	}
}

func (b *broker) Event(e redeliver.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *broker) Start(l driver.Lane[*record]) { b.started = l != nil }
func (b *broker) Messages() <-chan *record     { return b.in }
func (b *broker) Lost() <-chan struct{}        { return nil }
func (b *broker) Accept(int)                   {}
func (b *broker) Stop() <-chan struct{}        { return nil }
func (b *broker) Commit()                      {}
func (b *broker) Flush(context.Context)        {}

func (b *broker) Return(m *driver.Message[*record], _ time.Duration, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned = append(b.returned, m.Record.id)
}

func (b *broker) returnedIDs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(slices.Values(b.returned))
}

func (b *broker) Parse(m *driver.Message[*record]) error {
	rec := m.Record
	if rec.headers == nil {
		b.consumer.ReportForeignHeaders(m, maps.All(rec.metadata))
		return nil
	}
	m.Place = "orders.retry." + delayqueue.LevelName(rec.level)
	b.consumer.Arrive(m, delayqueue.Arrival{Ladder: b.ladder, Level: rec.level, Written: rec.written}, rec.headers)
	return nil
}

func (b *broker) Settle(*driver.Message[*record]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled++
}

func (b *broker) toWatermill(m *driver.Message[*record]) (*message.Message, error) {
	if m.Record.id == "panics" {
		panic("no such schema")
	}
	return message.NewMessage(m.Record.id, nil), nil
}
func (b *broker) Key(*driver.Message[*record]) []byte  { return nil }
func (b *broker) Body(*driver.Message[*record]) []byte { return nil }
func (b *broker) Headers(m *driver.Message[*record]) redeliver.Headers {
	return message.Metadata(m.Record.metadata)
}

func (b *broker) Age(m *driver.Message[*record]) (state *redeliver.State, created, expires time.Time) {
	return nil, m.Record.written, time.Time{}
}

func (b *broker) State(m *driver.Message[*record], st *redeliver.State) {
	st.ID, st.Source = m.Record.id, redeliver.Source{Known: true, Partition: 1, Offset: 7, Timestamp: m.Record.written}
}

func (b *broker) Write(_ context.Context, to driver.Place, m *driver.Message[*record], st *redeliver.State, done driver.Done) {
	where := "orders.dlq"
	b.mu.Lock()
	switch to {
	case driver.PlaceDLQ:
		b.dead = append(b.dead, *st)
	case driver.PlaceTopic:
		where = "orders"
		b.published = append(b.published, st.ID)
	default:
		level, _ := b.ladder.Next(time.Until(st.Due), 100*time.Millisecond)
		where = delayqueue.LevelName(level)
		b.written = append(b.written, where)
		b.in <- &record{id: m.Record.id, metadata: m.Record.metadata, written: time.Now(), level: level, headers: driver.AppendStateHeaders(*st, nil)}
	}
	b.mu.Unlock()
	done.Confirmed(where, nil)
}

func TestABadConfigurationIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	_, err := adapters.New(adapters.Config[*record]{
		Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}, MaxInFlight: -1, MinInFlight: 9, DrainTimeout: -1, SendTimeout: -1, MaxBytes: -1, NackDelay: -1, MaxRetriesInFlight: -1,
		Batch: redeliver.BatchConfig{Size: 3},
	})
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range refused.Problems {
		fields = append(fields, p.Field)
	}
	want := []string{"Origin", "Group", "Codec", "Store", "Handler", "Batch", "Policy.Order", "MaxInFlight", "MaxRetriesInFlight", "MinInFlight", "NackDelay", "DrainTimeout", "SendTimeout", "MaxBytes"}
	if !slices.Equal(fields, want) {
		t.Errorf("problems of %q, want %q", fields, want)
	}
	b := newBroker(redeliver.Policy{})
	both := b.config(redeliver.Policy{}, func(context.Context, *record) error { return nil })
	both.BatchHandler = func(context.Context, *mq.Batch[*record]) error { return nil }
	both.Batch, both.MaxInFlight = redeliver.BatchConfig{Size: 20, Bytes: -1}, 10
	_, err = adapters.New(both)
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); !ok || len(refused.Problems) != 3 {
		t.Errorf("two handlers, and a batch that is never full and has negative bytes: %v, want 3 problems", err)
	}
}

// A message waits on levels, hops, comes back when it is due and not before, and goes to the DLQ after its last attempt.
func TestARecordIsRetriedAndDeadLettered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(95 * time.Second), Levels: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute}}
		b, began := newBroker(policy), time.Now()
		var ran []time.Duration
		handler := func(ctx context.Context, _ *record) error {
			if ctx.Value(contextKey{}) != "kept" {
				t.Error("the handler's context lacks the values of Run's")
			}
			ran = append(ran, time.Since(began).Truncate(time.Second))
			return errors.New("declined")
		}
		b.run(t, b.config(policy, handler), func() {
			b.in <- &record{id: "4711", metadata: map[string]string{redeliver.HeaderAttempt: "7"}, written: began}
			<-time.After(time.Hour) // in virtual time
		})
		if want := []time.Duration{0, 95 * time.Second, 190 * time.Second}; !slices.Equal(ran, want) {
			t.Errorf("attempts after %v, want %v", ran, want)
		}
		if hops := []string{"1m", "30s", "5s"}; !slices.Equal(b.written, slices.Concat(hops, hops)) {
			t.Errorf("it waited on %v, want %v twice", b.written, hops)
		}
		if len(b.dead) != 1 || b.settled != 7 {
			t.Fatalf("%d dead letters, and %d copies were settled; want 1 and 7", len(b.dead), b.settled)
		}
		if st := b.dead[0]; st.ID != "4711" || st.Group != "billing" || st.Origin != "orders" || st.Attempts != 3 || st.Reason != redeliver.ReasonExhausted || st.Source.Offset != 7 {
			t.Errorf("the dead letter has the state %+v", st)
		}
		ignored, consuming := 0, 0
		for _, e := range b.events {
			switch e := e.(type) {
			case redeliver.HeadersIgnored:
				if e.ID == "4711" && len(e.Findings) == 1 {
					ignored++
				}
			case redeliver.SubscriptionChanged:
				if e.Change == redeliver.ChangeConsuming {
					consuming++
				}
			}
		}
		if ignored != 1 || consuming != 1 || !b.started {
			t.Errorf("foreign headers were reported %d times and consuming %d times, want once each; the source got its lane: %v", ignored, consuming, b.started)
		}
	})
}

// Ids are unique and bounded, whatever the codec returns, and redeliver-expires counts.
func TestTheStateOfAFirstDeliveryIsCompleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{MaxRetries: redeliver.NoRetries}
		b := newBroker(policy)
		expired := map[string]string{redeliver.HeaderExpires: time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)}
		ran := 0
		handler := func(context.Context, *record) error { ran++; return errors.New("declined") }
		b.run(t, b.config(policy, handler), func() {
			for _, rec := range []*record{{id: "", written: time.UnixMilli(1764316800123)}, {id: "orders/1/7@1764316800123"}, {id: string(make([]byte, 600))}, {id: "expired", metadata: expired}, {id: ""}} {
				b.in <- rec
				synctest.Wait()
			}
		})
		var ids []string
		for _, st := range b.dead {
			ids = append(ids, st.ID)
		}
		if len(ids) != 5 || ids[0] != "orders/1/7@1764316800123" || ids[1] != "given:orders/1/7@1764316800123" || len(ids[2]) > 512 || ids[2] == "" || ids[3] != "expired" || ids[4] != "derived:orders/1/7" {
			t.Fatalf("the ids are %q", ids)
		}
		if st := b.dead[3]; ran != 4 || st.Reason != redeliver.ReasonExpired || st.Expires.IsZero() {
			t.Errorf("%d handlers ran, want 4; the expired message has %q", ran, st.Reason)
		}
	})
}

// A retry whose own expiry has passed does not run, and a delayed publish goes to its topic when it is due.
func TestMessagesFromALevel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
		b, began := newBroker(policy), time.Now()
		expired := map[string]string{redeliver.HeaderExpires: began.Add(30 * time.Second).UTC().Format(time.RFC3339)}
		wait := redeliver.State{Group: "billing", Origin: "orders", Due: began.Add(time.Minute)}
		retry, publish := wait, wait
		retry.ID, retry.Attempts, retry.FirstFailed, retry.LastFailed = "retry", 1, began, began
		publish.ID = "publish"
		ran := 0
		b.run(t, b.config(policy, func(context.Context, *record) error { ran++; return nil }), func() {
			b.in <- &record{id: "retry", metadata: expired, written: began, level: time.Minute, headers: driver.AppendStateHeaders(retry, nil)}
			b.in <- &record{id: "publish", written: began, level: time.Minute, headers: driver.AppendStateHeaders(publish, nil)}
			<-time.After(59 * time.Second) // in virtual time
			b.mu.Lock()
			if len(b.published)+len(b.dead) != 0 {
				t.Errorf("published %q and %d dead letters before they were due", b.published, len(b.dead))
			}
			b.mu.Unlock()
			<-time.After(time.Minute)
		})
		if len(b.dead) != 1 || b.dead[0].ID != "retry" || b.dead[0].Reason != redeliver.ReasonExpired || ran != 0 {
			t.Errorf("%d handlers ran, the dead letters are %+v", ran, b.dead)
		}
		if !slices.Equal(b.published, []string{"publish"}) || b.settled != 2 {
			t.Errorf("published %q, %d settled", b.published, b.settled)
		}
	})
}

func TestWatermillMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{MaxRetries: redeliver.NoRetries}
		b := newBroker(policy)
		var ids []string
		cfg := b.config(policy, nil)
		cfg.ToWatermill = b.toWatermill
		b.run(t, cfg, func() {
			b.in <- &record{id: "panics"}
			b.in <- &record{id: "4711"}
			msg := <-b.consumer.Messages()
			ids = append(ids, msg.UUID)
			msg.Ack()
			synctest.Wait()
		})
		if _, open := <-b.consumer.Messages(); open || !slices.Equal(ids, []string{"4711"}) || b.settled != 2 {
			t.Errorf("the channel is open: %v; messages %v, %d settled", open, ids, b.settled)
		}
		if len(b.dead) != 1 || b.dead[0].Reason != redeliver.ReasonUndecodable {
			t.Errorf("dead letters %+v, want one, undecodable", b.dead)
		}
	})
}

// An adapter of the user's own has batches: each message has its own answer, and its own attempts.
func TestBatchesOfRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
		b := newBroker(policy)
		cfg := b.config(policy, nil)
		cfg.Batch = redeliver.BatchConfig{Size: 2, Timeout: time.Hour}
		var ran []string
		cfg.BatchHandler = func(_ context.Context, batch *mq.Batch[*record]) error {
			var ids []string
			for _, m := range batch.Messages {
				ids = append(ids, fmt.Sprintf("%s/%d", m.Record.id, m.State().Attempt()))
				if m.Record.id == "bad" {
					m.Answer(errors.New("declined"))
				}
			}
			ran = append(ran, strings.Join(ids, " "))
			return nil
		}
		b.run(t, cfg, func() {
			b.in <- &record{id: "good", written: time.Now()}
			b.in <- &record{id: "bad", written: time.Now()}
			<-time.After(2 * time.Hour) // in virtual time
		})
		if want := []string{"good/1 bad/1", "bad/2"}; !slices.Equal(ran, want) {
			t.Errorf("batches %q, want %q", ran, want)
		}
		if len(b.dead) != 1 || b.dead[0].ID != "bad" {
			t.Errorf("dead letters %+v, want one, bad", b.dead)
		}
	})
}

// While an operator has paused the group nothing begins, and what waits for its handler goes back to the source. With NewOnly
// retries continue.
func TestAPauseOfTheGroup(t *testing.T) {
	t.Parallel()
	for _, newOnly := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			policy := redeliver.Policy{Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
			b := newBroker(policy)
			var mark atomic.Pointer[redeliver.PauseMark]
			var mu sync.Mutex
			var ran []string
			cfg := b.config(policy, func(_ context.Context, rec *record) error {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, rec.id)
				return nil
			})
			cfg.PauseMark = func(context.Context) (*redeliver.PauseMark, error) { return mark.Load(), nil }
			paused := redeliver.ParsePauseMark(adapters.NewPauseMark(t.Context(), "a migration", newOnly).String())
			mark.Store(&paused)
			retry := redeliver.State{ID: "retry", Group: "billing", Origin: "orders", Attempts: 1, Due: time.Now()}
			b.run(t, cfg, func() {
				b.in <- &record{id: "new", written: time.Now()}
				b.in <- &record{id: "retry", written: time.Now(), level: time.Minute, headers: driver.AppendStateHeaders(retry, nil)}
				<-time.After(time.Minute) // in virtual time
				mu.Lock()
				if want := newOnly; slices.Contains(ran, "retry") != want || slices.Contains(ran, "new") {
					t.Errorf("new-only %v: %q ran in the pause", newOnly, ran)
				}
				mu.Unlock()
				if want := []string{"new", "retry"}[:2-btoi(newOnly)]; !slices.Equal(b.returnedIDs(), want) {
					t.Errorf("new-only %v: %q were returned, want %q", newOnly, b.returnedIDs(), want)
				}
				mark.Store(nil)
				<-time.After(time.Minute)
				b.in <- &record{id: "later", written: time.Now()}
				synctest.Wait()
			})
			if !slices.Contains(ran, "later") {
				t.Errorf("new-only %v: after the pause only %q ran", newOnly, ran)
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tracer counts runs by their outcomes.
type tracer struct {
	mu       sync.Mutex
	outcomes []observe.Outcome
}

func (c *tracer) Begin(ctx context.Context, _ *observe.Run) (context.Context, observe.Span) {
	return ctx, c
}
func (c *tracer) DeadLettered(context.Context, *observe.DeadLetter) {}
func (c *tracer) Traceparent() string                               { return "" }

func (c *tracer) End(e observe.End) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes = append(c.outcomes, e.Outcome)
}

// A tracer that is not redeliver's gets a span for each attempt.
func TestATracerGetsEachAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Minute), Levels: []time.Duration{time.Minute}}
		b, spans := newBroker(policy), &tracer{}
		cfg := b.config(policy, func(_ context.Context, rec *record) error {
			if rec.id == "bad" {
				return errors.New("declined")
			}
			return nil
		})
		cfg.Tracer = spans
		b.run(t, cfg, func() {
			b.in <- &record{id: "good", written: time.Now()}
			synctest.Wait()
			b.in <- &record{id: "bad", written: time.Now()}
			<-time.After(time.Hour) // in virtual time
		})
		if want := []observe.Outcome{observe.OutcomeSucceeded, observe.OutcomeRetried, observe.OutcomeDeadLettered}; !slices.Equal(spans.outcomes, want) {
			t.Errorf("the runs ended as %q, want %q", spans.outcomes, want)
		}
	})
}
