package amqp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/middleware"
)

// ear is one process that listens to an exchange.
type ear struct {
	*testing.T
	mu      sync.Mutex
	changed chan struct{}
	well    []string
	ill     map[string]redeliver.BroadcastFailed
	changes []string
	stop    func()
}

// hear runs a handler over a broadcast consumer until stop is called, or the test ends.
func hear(t *testing.T, cfg amqp.BroadcastConfig, topic string, h message.NoPublishHandlerFunc, around ...message.HandlerMiddleware) *ear {
	t.Helper()
	e := &ear{T: t, changed: make(chan struct{}), ill: make(map[string]redeliver.BroadcastFailed)}
	cfg.Sink = redeliver.SinkFunc(e.event)
	b, err := amqp.OpenBroadcast(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(around...)
	router.AddConsumerHandler("h", topic, b, h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, b.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(e.stop)
	e.await("consuming", func() bool { return len(e.changes) > 0 })
	return e
}

func (e *ear) event(ev redeliver.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev := ev.(type) {
	case redeliver.Committed:
		e.well = append(e.well, ev.State.ID)
		slices.Sort(e.well)
	case redeliver.BroadcastFailed:
		e.ill[ev.State.ID] = ev
	case redeliver.SubscriptionChanged:
		e.changes = append(e.changes, ev.Change)
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *ear) await(what string, ok func() bool) {
	e.Helper()
	deadline := time.After(patience)
	for {
		e.mu.Lock()
		is, changed := ok(), e.changed
		e.mu.Unlock()
		if is {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			e.mu.Lock()
			defer e.mu.Unlock()
			e.Fatalf("not within %s: %s; %q, %v, %q", patience, what, e.well, e.ill, e.changes)
		}
	}
}

// shout writes messages to a fanout exchange with a client that knows nothing of redeliver.
func shout(t *testing.T, r *brokers.Rabbit, exchange string, ids ...string) *amqp091.Connection {
	t.Helper()
	conn, err := amqp091.Dial(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := ch.PublishWithContext(t.Context(), exchange, "", false, false, amqp091.Publishing{MessageId: id}); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// Every process gets every message, on both brokers; what fails is told of, the next
// goes on, and no queue is left when the processes are gone.
func TestBroadcast(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*brokers.Rabbit{"RabbitMQ 3.10": brokers.RequireRabbitMQ(t), "RabbitMQ 4": brokers.RequireRabbitMQ4(t)} {
		t.Run(name, func(t *testing.T) { broadcasts(t, r) })
	}
}

func broadcasts(t *testing.T, r *brokers.Rabbit) {
	topic := unique(t)
	cfg := amqp.BroadcastConfig{URLs: []string{r.URL()}, Policy: redeliver.Policy{Timeout: time.Second}, MaxInFlight: 2}
	hang := make(chan struct{})
	h := func(msg *message.Message) error {
		if d := amqp.DeliveryFromContext(msg.Context()); d == nil || d.MessageId != msg.UUID && d.MessageId != "" {
			t.Errorf("%s: its context has %+v", msg.UUID, d)
		}
		switch id := amqp.DeliveryFromContext(msg.Context()).MessageId; id {
		case "fails":
			return redeliver.Permanent(errDeclined)
		case "panics":
			panic("no")
		case "hangs", "hangs, too":
			<-hang
		}
		return nil
	}
	ears := []*ear{
		hear(t, cfg, topic, h, middleware.Retry(middleware.AllowBroadcast)),
		hear(t, cfg, topic, h, middleware.Retry(middleware.AllowBroadcast)),
	}
	t.Cleanup(func() { close(hang) }) // before they are stopped
	shout(t, r, topic, "a", "fails", "hangs", "panics", "hangs, too", "b", "c")
	for i, e := range ears {
		e.await("the end of all", func() bool { return len(e.well)+len(e.ill) == 7 })
		e.mu.Lock()
		if !slices.Equal(e.well, []string{"a", "b", "c"}) {
			t.Errorf("process %d: %q are done", i, e.well)
		}
		for id, want := range map[string]redeliver.Reason{
			"fails": redeliver.ReasonPermanent, "panics": redeliver.ReasonPanic, "hangs": redeliver.ReasonTimeout, "hangs, too": redeliver.ReasonTimeout,
		} {
			if got := e.ill[id]; got.State.Reason != want || got.State.Origin != topic || got.State.Group != "" {
				t.Errorf("process %d: %s: %+v", i, id, got)
			}
		}
		e.mu.Unlock()
	}
}

// A process that lost its connection has another queue, and says that it missed
// what was published meanwhile; when it ends, its queue does.
func broadcastComesBack(t *testing.T, r *brokers.Rabbit) {
	topic := unique(t)
	e := hear(t, amqp.BroadcastConfig{URLs: []string{r.URL()}}, topic, func(*message.Message) error { return nil })
	shout(t, r, topic, "before")
	e.await("the first", func() bool { return len(e.well) == 1 })
	if err := r.CloseAllConnections(context.Background(), "a test"); err != nil {
		t.Fatal(err)
	}
	e.await("another queue", func() bool { return slices.Equal(e.changes, []string{"consuming", "disconnected", "consuming"}) })
	conn := shout(t, r, topic, "after")
	e.await("the second", func() bool { return slices.Equal(e.well, []string{"after", "before"}) })
	e.stop()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDelete(topic, true, false); err != nil { // if nothing is bound to it
		t.Errorf("a queue is left: %v", err)
	}
}

// An exchange that is said to be there, and is not, is refused, and leaves no queue
// behind: the connection stays.
func TestABroadcastWithoutItsExchange(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t)
	b, err := amqp.OpenBroadcast(t.Context(), amqp.BroadcastConfig{URLs: []string{r.URL()}, Topology: amqp.Topology{Existing: true}})
	if err != nil {
		t.Fatal(err)
	}
	topic := unique(t)
	if _, err := b.Subscribe(t.Context(), topic); err == nil || !strings.Contains(err.Error(), "no exchange") {
		t.Errorf("an exchange that is not there: %v", err)
	}
	if left := newAdmin(t, r).queues(t, topic); len(left) > 0 {
		t.Errorf("there are %q", left)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
