package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/middleware"
)

// listen runs a Router over a broadcast consumer of a process of its own until stop
// is called, or the test ends.
func listen(t *testing.T, p place, cfg kafka.BroadcastConfig, h message.NoPublishHandlerFunc, around ...message.HandlerMiddleware) (ev *events, stop func()) {
	t.Helper()
	ev = newEvents()
	cfg.Brokers, cfg.Sink = p.addrs, ev
	b, err := kafka.OpenBroadcast(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NewSlogLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(around...)
	router.AddConsumerHandler("h", p.topic, b, h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := errors.Join(router.Run(ctx), b.Close()); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	ev.await(t, 1, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == "consuming"
	})
	return ev, stop
}

func ids[E redeliver.Event](ev *events, id func(E) string) (found []string) {
	for _, e := range all[E](ev) {
		found = append(found, id(e))
	}
	slices.Sort(found)
	return found
}

func committed(ev *events) []string {
	return ids(ev, func(e redeliver.Committed) string { return e.State.ID })
}

// Every process gets every message that is written while it listens; what fails is
// told of, the next goes on, and nothing is written or committed anywhere.
func TestOnKafkaBroadcast(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	put(t, p.addrs, order(p.topic, "before"))
	policy := redeliver.Policy{Timeout: time.Second}
	hang := make(chan struct{})
	h := func(msg *message.Message) error {
		if kafka.RecordFromContext(msg.Context()) == nil {
			t.Errorf("%s: its context has no record", msg.UUID)
		}
		switch msg.UUID {
		case "fails":
			return errDeclined
		case "permanent":
			return redeliver.Permanent(errDeclined)
		case "panics":
			panic("no")
		case "hangs":
			<-hang
		}
		return nil
	}
	plain, _ := listen(t, p, kafka.BroadcastConfig{Policy: policy}, h)
	told, _ := listen(t, p, kafka.BroadcastConfig{Policy: policy}, h, middleware.Retry(middleware.AllowBroadcast))
	t.Cleanup(func() { close(hang) }) // before they are stopped
	var recs []*kgo.Record
	for i, id := range []string{"fails", "permanent", "panics", "hangs", "well", "well-1", "well-2", "well-3"} {
		rec := order(p.topic, id)
		rec.Partition = int32(i % 4)
		recs = append(recs, rec)
	}
	recs[4].Headers = append(recs[4].Headers, kgo.RecordHeader{Key: redeliver.HeaderAttempt, Value: []byte("17")}) // copied onward
	put(t, p.addrs, recs...)
	for name, ev := range map[string]*events{"plain": plain, "told": told} {
		failed := ev.await(t, 4, is[redeliver.BroadcastFailed])
		ev.await(t, 4, is[redeliver.Committed])
		if found := all[redeliver.HeadersIgnored](ev); len(found) != 1 || found[0].ID != "well" || found[0].Topic != p.topic {
			t.Errorf("%s: ignored %+v", name, found)
		}
		if got := committed(ev); !slices.Equal(got, []string{"well", "well-1", "well-2", "well-3"}) {
			t.Errorf("%s: committed %q", name, got)
		}
		for _, e := range failed {
			e := e.(redeliver.BroadcastFailed)
			want := map[string]redeliver.Reason{"fails": redeliver.ReasonExhausted, "permanent": redeliver.ReasonPermanent, "panics": redeliver.ReasonPanic, "hangs": redeliver.ReasonTimeout}[e.State.ID]
			if ev == plain && want != redeliver.ReasonTimeout { // the Router nacks, and says no more
				want = redeliver.ReasonExhausted
			}
			if e.State.Reason != want || e.State.Origin != p.topic || e.State.Group != "" || !e.State.Source.Known {
				t.Errorf("%s: %+v, want %s", name, e.State, want)
			}
			if told := errors.Is(e.Err, errDeclined); told != (ev != plain && (e.State.ID == "fails" || e.State.ID == "permanent")) {
				t.Errorf("%s: %s failed because of %v", name, e.State.ID, e.Err)
			}
		}
	}
	adm := kadm.NewClient(independent(t, p.addrs))
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics.Names() {
		if topic != p.topic && strings.HasPrefix(topic, p.topic) {
			t.Errorf("there is a topic %s", topic)
		}
	}
	groups, err := adm.DescribeGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Sorted() {
		for _, m := range g.Members {
			if c, ok := m.Join.AsConsumer(); ok && slices.Contains(c.Topics, p.topic) {
				t.Errorf("group %s reads it", g.Group)
			}
		}
	}
}

// Retry and Receiver have nothing to do there, and say so; asked for by name, Retry
// has the tries made that the policy allows in the process.
func TestABroadcastIsNotRetried(t *testing.T) {
	t.Parallel()
	p := place{addrs: fake(t, "prices").ListenAddrs(), topic: "prices"}
	refused, stop := listen(t, p, kafka.BroadcastConfig{}, func(*message.Message) error {
		t.Error("the handler ran")
		return nil
	}, middleware.Retry())
	allowed, _ := listen(t, p, kafka.BroadcastConfig{Policy: redeliver.Policy{Immediate: 2}}, func(msg *message.Message) error {
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() < 3 {
			return errDeclined
		}
		return nil
	}, middleware.Retry(middleware.AllowBroadcast))
	put(t, p.addrs, order("prices", "p-1"))
	e := refused.await(t, 1, is[redeliver.BroadcastFailed])[0].(redeliver.BroadcastFailed)
	if !errors.Is(e.Err, middleware.ErrBroadcast) || !strings.Contains(e.Err.Error(), "AllowBroadcast") {
		t.Errorf("refused with %v", e.Err)
	}
	if ends := allowed.await(t, 1, is[redeliver.Committed]); len(all[redeliver.Attempted](allowed)) != 3 || len(all[redeliver.BroadcastFailed](allowed)) != 0 {
		t.Errorf("%+v after %+v", ends, all[redeliver.Attempted](allowed))
	}
	stop()

	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: p.addrs, Sink: refused})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	r, err := middleware.NewReceiver(t.Context(), b, "prices")
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.addrs, order("prices", "p-2"))
	if got, err := r.Receive(t.Context(), 1, time.Second); !errors.Is(err, middleware.ErrBroadcast) {
		t.Errorf("received %v, %v", got, err)
	}
}

// Where it begins is the caller's to say; and what one of its keys waits for is the
// one before it.
func TestABroadcastFromTheStartInTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	p := place{addrs: fake(t, "prices").ListenAddrs(), topic: "prices"}
	var recs []*kgo.Record
	for i := range 200 {
		rec := order("prices", fmt.Sprintf("p-%03d", i))
		rec.Key = []byte("one")
		recs = append(recs, rec)
	}
	put(t, p.addrs, recs...)
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	var mu sync.Mutex
	var got []string
	var running atomic.Int64
	ev, _ := listen(t, p, kafka.BroadcastConfig{Sarama: cfg}, func(msg *message.Message) error {
		if n := running.Add(1); n > 1 {
			t.Errorf("%s runs beside %d others of its key", msg.UUID, n-1)
		}
		defer running.Add(-1)
		<-time.After(time.Millisecond) // its work
		mu.Lock()
		defer mu.Unlock()
		got = append(got, msg.UUID)
		return nil
	})
	ev.await(t, len(recs), is[redeliver.Committed])
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(got) || len(got) != len(recs) {
		t.Errorf("%d ran, in the order %q", len(got), got)
	}
}

// A partition that the topic gets later is read from its start.
func TestABroadcastFindsNewPartitions(t *testing.T) {
	t.Parallel()
	p := place{addrs: fake(t, "prices").ListenAddrs(), topic: "prices"}
	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: p.addrs, Sink: newEvents()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	kafka.LookEvery(b, 20*time.Millisecond)
	out, err := b.Subscribe(t.Context(), "prices")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(independent(t, p.addrs)).CreatePartitions(t.Context(), 1, "prices"); err != nil {
		t.Fatal(err)
	}
	rec := order("prices", "on the fifth")
	rec.Partition = 4
	put(t, p.addrs, rec)
	select {
	case msg := <-out:
		if msg.UUID != "on the fifth" {
			t.Errorf("got %s", msg.UUID)
		}
		msg.Ack()
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
}

// A broker that does not answer is waited for, and told of once; what it has deleted
// meanwhile is missed, and told of, too.
func TestABroadcastOverAnOutage(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "prices")
	p := place{addrs: cluster.ListenAddrs(), topic: "prices"}
	cfg := sarama.NewConfig()
	// It is told of after both together.
	cfg.Consumer.Retry.Backoff, cfg.Net.DialTimeout, cfg.Net.ReadTimeout = 20*time.Millisecond, 5*time.Second, 5*time.Second
	ev, _ := listen(t, p, kafka.BroadcastConfig{Sarama: cfg}, func(*message.Message) error { return nil })
	recs, _ := orders("prices", 10) // all on partition 0
	put(t, p.addrs, recs[:3]...)
	ev.await(t, 3, is[redeliver.Committed])
	var away atomic.Bool
	away.Store(true)
	cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if away.Load() {
			return nil, errors.New("closed"), true
		}
		return nil, nil, false
	})
	changed := func(what string) func(redeliver.Event) bool {
		return func(e redeliver.Event) bool {
			c, ok := e.(redeliver.SubscriptionChanged)
			return ok && c.Change == what
		}
	}
	ev.await(t, 1, changed("disconnected"))
	put(t, p.addrs, recs[3:8]...)
	offsets := make(kadm.Offsets)
	offsets.AddOffset("prices", 0, 6, -1)
	if _, err := kadm.NewClient(independent(t, p.addrs)).DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	away.Store(false)
	ev.await(t, 1, changed("missed"))
	ev.await(t, 5, is[redeliver.Committed])
	ev.await(t, 2, changed("consuming"))
	put(t, p.addrs, recs[8:]...)
	ev.await(t, 7, is[redeliver.Committed])
}

// What is wrong is refused at once, all of it.
func TestOpenBroadcastRefuses(t *testing.T) {
	t.Parallel()
	_, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{
		Brokers: []string{"nowhere"}, MaxInFlight: -1, DrainTimeout: -1, Policy: redeliver.Policy{MaxRetries: 3},
	})
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range bad.Problems {
		fields = append(fields, p.Field)
	}
	slices.Sort(fields)
	if want := []string{"Brokers[0]", "DrainTimeout", "MaxInFlight", "Policy.MaxRetries"}; !slices.Equal(fields, want) {
		t.Errorf("refused %q, want %q", fields, want)
	}
	p := place{addrs: fake(t, "prices").ListenAddrs()}
	b, err := kafka.OpenBroadcast(t.Context(), kafka.BroadcastConfig{Brokers: p.addrs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Subscribe(t.Context(), "missing"); err == nil || !strings.Contains(err.Error(), "must exist") {
		t.Errorf("a topic that is not there: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Subscribe(t.Context(), "prices"); err == nil {
		t.Error("a closed consumer subscribes")
	}
}
