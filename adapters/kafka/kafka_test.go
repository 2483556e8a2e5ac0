package kafka_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

// waitTimeout bounds the wait for an event. On a shared machine, beside seven other tests, ten seconds of work took
// more than one minute.
const waitTimeout = 3 * time.Minute

// fake starts an in-process Kafka with the given topics of four partitions.
func fake(t *testing.T, topics ...string) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topics...),
		kfake.GroupMinSessionTimeout(time.Second), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// events collects a client's events.
type events struct {
	mu   sync.Mutex
	list []redeliver.Event
	more chan struct{}
	load func() observe.Load // of the member that began last
}

func newEvents() *events { return &events{more: make(chan struct{}, 1)} }

func (e *events) Event(ev redeliver.Event) {
	e.mu.Lock()
	e.list = append(e.list, ev)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// await returns when at least n events match, and returns the matching ones.
func (e *events) await(t *testing.T, n int, match func(redeliver.Event) bool) []redeliver.Event {
	t.Helper()
	deadline := time.After(waitTimeout)
	for {
		var found []redeliver.Event
		e.mu.Lock()
		for _, ev := range e.list {
			if match(ev) {
				found = append(found, ev)
			}
		}
		e.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-e.more:
		case <-deadline:
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, ev := range e.list[max(0, len(e.list)-40):] {
				t.Logf("%T %+v", ev, ev)
			}
			t.Fatalf("%d of %d events after %s", len(found), n, waitTimeout)
		}
	}
}

func is[E redeliver.Event](e redeliver.Event) bool { _, ok := e.(E); return ok }

// withLongTimeouts sets a minute where cfg has sarama's defaults of seconds. If cfg is nil, it makes a configuration
// that reads from the start. No test waits for these timeouts, but on a slow machine short ones remove members from the
// group, or refuse to open.
func withLongTimeouts(cfg *sarama.Config) *sarama.Config {
	def := sarama.NewConfig()
	sc := *def
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	if cfg != nil {
		sc = *cfg
	}
	for field, was := range map[*time.Duration]time.Duration{
		&sc.Consumer.Group.Session.Timeout: def.Consumer.Group.Session.Timeout, &sc.Net.DialTimeout: def.Net.DialTimeout,
	} {
		if *field == was {
			*field = time.Minute
		}
	}
	return &sc
}

// withoutOutages turns the detection of outages off, unless the test configures it. In many tests all messages fail.
func withoutOutages(p redeliver.Policy) redeliver.Policy {
	if p.Outage == (redeliver.Outage{}) {
		p.Outage.Off = true
	}
	return p
}

// open connects a client, and collects its events.
func openClient(t *testing.T, cfg kafka.Config) (*mq.Client, *events) {
	t.Helper()
	ev := newEvents()
	if cfg.Sink == nil {
		cfg.Sink = ev
	}
	cfg.Sarama, cfg.Policy = withLongTimeouts(cfg.Sarama), withoutOutages(cfg.Policy)
	c, err := kafka.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// On a slow machine a test takes longer than the default of 30 s, and records that it reads on a delay topic would
	// be deleted.
	kafka.SweepEvery(c, time.Hour)
	t.Cleanup(func() {
		if t.Failed() {
			for _, e := range ev.last(60) {
				t.Logf("%T %+v", e, e)
			}
		}
		_ = c.Close(context.Background())
		ev.noneNacked(t)
	})
	return c, ev
}

// noneNacked checks that middleware.Retry moved the failed messages. The subscriber does the same for a nack, so most
// tests would pass without the middleware.
func (e *events) noneNacked(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		var st redeliver.State
		var err error
		switch ev := ev.(type) {
		case redeliver.RetryScheduled:
			st, err = ev.State, ev.Err
		case redeliver.DeadLettered:
			st, err = ev.State, ev.Err
		case redeliver.MessagePostponed:
			st, err = ev.State, ev.Err
		}
		if errors.Is(err, redeliver.ErrNacked) {
			t.Errorf("attempt %d of %s was an unexplained nack", st.Attempts, st.ID)
			return
		}
	}
}

// route runs a Router with Retry around h until the test ends.
func route(t *testing.T, c *mq.Client, topic string, h message.NoPublishHandlerFunc) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NewSlogLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("h", topic, c.Subscriber(), h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := router.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// write produces records with an independent client. Their keys choose the partitions.
func write(t *testing.T, addrs []string, recs ...*kgo.Record) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func TestAFailedMessageWaitsOnLevelsAndEndsInTheDLQ(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	c, ev := openClient(t, kafka.Config{
		Brokers: cluster.ListenAddrs(), Group: "billing",
		Policy: redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(100*time.Millisecond, 300*time.Millisecond)},
	})
	var mu sync.Mutex
	var attempts []int
	route(t, c, "orders", func(msg *message.Message) error {
		st, ok := redeliver.FromContext(msg.Context())
		if !ok {
			t.Error("no state in the handler's context")
		}
		if time.Now().Before(st.Due) {
			t.Errorf("attempt %d is early by %s", st.Attempt(), time.Until(st.Due))
		}
		mu.Lock()
		attempts = append(attempts, st.Attempt())
		mu.Unlock()
		return errors.New("card declined")
	})
	write(t, cluster.ListenAddrs(), &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte("v")})
	dead := ev.await(t, 1, is[redeliver.DeadLettered])[0].(redeliver.DeadLettered)
	if dead.State.Reason != redeliver.ReasonExhausted || dead.State.Attempts != 3 || dead.Where != "orders.billing.dlq" || dead.State.Error != "card declined" {
		t.Errorf("dead-lettered as %+v", dead)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(attempts) != 3 || attempts[0] != 1 || attempts[1] != 2 || attempts[2] != 3 {
		t.Errorf("attempts %v, want 1 2 3", attempts)
	}
}
