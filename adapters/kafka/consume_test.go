package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// saramaClient returns a service's own client, without redeliver's settings.
func saramaClient(t *testing.T, addrs []string) sarama.Client {
	t.Helper()
	client, err := sarama.NewClient(addrs, withLongTimeouts(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if client.Closed() {
			t.Error("the caller's client was closed")
		}
		_ = client.Close()
	})
	return client
}

// consume calls h for the topic's records until stop is called or the test ends.
func consume(t *testing.T, p fixture, cfg kafka.Config, h kafka.Handler) (ev *events, stop func()) {
	t.Helper()
	ev = newEvents()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last events: %v", ev.last(20))
		}
	})
	cfg.Group, cfg.Sink, cfg.Policy = p.group, ev, withoutOutages(cfg.Policy)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	client := saramaClient(t, p.addrs)
	go func() { done <- kafka.Consume(ctx, client, cfg, []string{p.topic}, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	ev.awaitJoined(t, 1)
	return ev, stop
}

// Each answer of a handler leads to the right end, and each attempt sees the record as it was in its topic.
func TestOnKafkaConsumeAppliesEachAnswer(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	policy := quick(3)
	policy.Timeout = 2 * time.Second
	type seen struct {
		attempt int
		rec     sarama.ConsumerMessage
	}
	var mu sync.Mutex
	runs := make(map[string][]seen)
	ev, _ := consume(t, p, kafka.Config{Policy: policy}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, ok := redeliver.FromContext(ctx)
		if !ok || kafka.RecordFromContext(ctx) != rec {
			t.Errorf("%s: its context has %+v, %v", rec.Key, st, kafka.RecordFromContext(ctx))
		}
		mu.Lock()
		runs[string(rec.Key)] = append(runs[string(rec.Key)], seen{st.Attempt(), *rec})
		mu.Unlock()
		switch string(rec.Key) {
		case "succeeds":
			return nil
		case "recovers":
			if st.Attempt() < 3 {
				return errDeclined
			}
			return nil
		case "permanent":
			return redeliver.Permanent(errDeclined)
		case "panics":
			panic("ours")
		case "hangs":
			<-ctx.Done()
			return ctx.Err()
		default:
			return errDeclined
		}
	})
	want := map[string]struct {
		attempts int
		reason   redeliver.Reason
	}{
		"succeeds": {attempts: 1}, "recovers": {attempts: 3},
		"fails": {4, redeliver.ReasonExhausted}, "permanent": {1, redeliver.ReasonPermanent},
		"panics": {4, redeliver.ReasonPanic}, "hangs": {4, redeliver.ReasonTimeout},
	}
	var ids []string
	var recs []*kgo.Record
	for id := range want {
		rec := order(p.topic, id)
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "trace", Value: []byte{0, 255}}, kgo.RecordHeader{Key: "trace"})
		ids, recs = append(ids, id), append(recs, rec)
	}
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	mu.Lock()
	defer mu.Unlock()
	for id, want := range want {
		var attempts, all []int
		for i, s := range runs[id] {
			attempts, all = append(attempts, s.attempt), append(all, i+1)
			if a, b := recordText(&runs[id][0].rec), recordText(&s.rec); a != b {
				t.Errorf("%s: attempt %d gets %s, the first got %s", id, s.attempt, b, a)
			}
		}
		if len(all) != want.attempts || !slices.Equal(attempts, all) {
			t.Errorf("%s: attempts %v, want %d", id, attempts, want.attempts)
		}
	}
	dead := make(map[string]redeliver.State)
	for _, d := range all[redeliver.DeadLettered](ev) {
		dead[d.State.ID] = d.State
	}
	for _, rec := range read(t, p.addrs, p.ours("dlq"), 4) {
		users, block := splitBlock(rec.Headers)
		id := string(rec.Key)
		if w := want[id]; block[redeliver.HeaderReason] != string(w.reason) || block[redeliver.HeaderAttempt] != fmt.Sprint(w.attempts) {
			t.Errorf("%s is in the DLQ with %v, want %+v", id, block, w)
		}
		if got, want := text(users), text(recs[0].Headers[1:]); !strings.HasSuffix(got, want) {
			t.Errorf("%s is in the DLQ with the headers %s, want %s", id, got, want)
		}
		delete(dead, id)
	}
	if len(dead) > 0 {
		t.Errorf("dead-lettered, and not in the DLQ: %v", dead)
	}
	ev.noneEarly(t)
	ev.noFindings(t)
}

func TestConsumeHoldsAnImmediateRetry(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	policy := quick(2)
	policy.Immediate = 1
	attempts := make(chan int, 3)
	ev, _ := consume(t, p, kafka.Config{Policy: policy}, func(ctx context.Context, _ *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		attempts <- st.Attempt()
		if st.Attempt() < 3 {
			return errDeclined
		}
		return nil
	})
	write(t, p.addrs, order("orders", "a"))
	ev.awaitEnds(t, "a")
	for want := 1; want <= 3; want++ {
		if got := <-attempts; got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
	}
	if n := len(all[redeliver.RetryScheduled](ev)); n != 1 {
		t.Errorf("%d retries were written, want one: the first was made in place", n)
	}
}

func recordText(m *sarama.ConsumerMessage) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%s/%d/%d %s %q=%q", m.Topic, m.Partition, m.Offset, m.Timestamp.UTC(), m.Key, m.Value)
	for _, h := range m.Headers {
		_, _ = fmt.Fprintf(&b, " %q=%q", h.Key, h.Value)
	}
	return b.String()
}

// Only a handler that finishes within the drain timeout has made an attempt.
func TestOnKafkaConsumeCountsOnlyFinishedAttemptsAtItsEnd(t *testing.T) {
	t.Parallel() // it waits for the drain timeout
	p := onKafka(t)
	entered := make(chan string)
	leave := make(chan struct{})
	var mu sync.Mutex
	cause := map[string]error{}
	ev, stop := consume(t, p, kafka.Config{DrainTimeout: 5 * time.Second}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		entered <- string(rec.Key)
		select {
		case <-ctx.Done():
			mu.Lock()
			cause[string(rec.Key)] = context.Cause(ctx)
			mu.Unlock()
			return ctx.Err()
		case <-leave:
			return nil
		}
	})
	slow, quick := order(p.topic, "slow"), order(p.topic, "quick")
	slow.Partition = 1
	put(t, p.addrs, slow)
	<-entered
	put(t, p.addrs, quick)
	<-entered
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	select {
	case leave <- struct{}{}:
	case <-ended:
		t.Fatal("both were cut off")
	}
	<-ended
	eventually(t, "the other handler is cut off", func() bool { // Consume does not wait for it
		mu.Lock()
		defer mu.Unlock()
		return len(cause) == 1
	})
	if done := all[redeliver.Committed](ev); len(done) != 1 {
		t.Fatalf("%d were committed, want one", len(done))
	}
	if n := len(all[redeliver.Abandoned](ev)); n != 1 {
		t.Errorf("%d were abandoned", n)
	}
	again := make(chan string, 2)
	second, _ := consume(t, p, kafka.Config{}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		if st, _ := redeliver.FromContext(ctx); st.Attempt() != 1 {
			t.Errorf("%s: attempt %d, want 1", rec.Key, st.Attempt())
		}
		again <- string(rec.Key)
		return nil
	})
	second.await(t, 1, is[redeliver.Committed])
	for id := range cause {
		if got := <-again; got != id || len(again) > 0 {
			t.Errorf("%s came back (and %d others), want only %s", got, len(again), id)
		}
	}
}

func TestOnKafkaConsumersKeepTheOrderOfKeysAcrossRebalances(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	const keys, each = 40, 50
	type run struct{ key, n int }
	var mu sync.Mutex
	last := make(map[int]int)
	running := make(map[int]bool)
	done, repeats := 0, 0
	handle := func(_ context.Context, rec *sarama.ConsumerMessage) error {
		var r run
		if _, err := fmt.Sscanf(string(rec.Value), "%d %d", &r.key, &r.n); err != nil {
			return redeliver.Permanent(err)
		}
		mu.Lock()
		if running[r.key] {
			t.Errorf("two of key %d at once", r.key)
		}
		switch {
		case r.n <= last[r.key]:
			repeats++
		case r.n != last[r.key]+1:
			t.Errorf("key %d: %d after %d", r.key, r.n, last[r.key])
			fallthrough
		default:
			last[r.key] = r.n
			done++
		}
		running[r.key] = true
		mu.Unlock()
		<-time.After(time.Millisecond)
		mu.Lock()
		running[r.key] = false
		mu.Unlock()
		return nil
	}
	cfg := kafka.Config{Policy: quick(1), DrainTimeout: longDrain}
	ev, _ := consume(t, p, cfg, handle)
	evs := []*events{ev}
	cl := independent(t, p.addrs, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	var recs []*kgo.Record
	for n := range each {
		for key := range keys {
			recs = append(recs, &kgo.Record{Topic: p.topic, Key: fmt.Appendf(nil, "%d", key), Value: fmt.Appendf(nil, "%d %d", key, n+1)})
		}
	}
	for half := range slices.Chunk(recs, len(recs)/2) {
		if err := cl.ProduceSync(t.Context(), half...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		ev, stop := consume(t, p, cfg, handle)
		evs = append(evs, ev)
		stop()
	}
	eventually(t, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return done >= len(recs)
	})
	excused := countRepeats(t, keys*each/10, evs...)
	mu.Lock()
	defer mu.Unlock()
	if repeats > excused {
		t.Errorf("%d records ran again and %d were reported", repeats, excused)
	}
}

// An error lists all problems of a call, and nothing is begun.
func TestConsumeRefusesABadCall(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	client := saramaClient(t, cluster.ListenAddrs())
	closed := sarama.NewConfig()
	gone, err := sarama.NewClient(cluster.ListenAddrs(), closed)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	manual := sarama.NewConfig()
	manual.Consumer.Offsets.AutoCommit.Enable = false
	careful, err := sarama.NewClient(cluster.ListenAddrs(), manual)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = careful.Close() })
	handle := func(context.Context, *sarama.ConsumerMessage) error { return nil }
	for name, c := range map[string]struct {
		client sarama.Client
		cfg    kafka.Config
		topics []string
		handle kafka.Handler
		want   []string
	}{
		"everything": {nil, kafka.Config{Brokers: cluster.ListenAddrs(), Sarama: sarama.NewConfig(), Marshaler: kafka.DefaultMarshaler{}, NackDelay: 1}, nil, nil,
			[]string{"Brokers", "Sarama", "Marshaler", "NackDelay", "topics", "handler", "client", "Group"}},
		"the call and its configuration": {careful, kafka.Config{NackDelay: -1, MaxInFlight: -1, MaxRetriesInFlight: 5, DrainTimeout: time.Hour, Policy: redeliver.Policy{MaxRetries: -7}, Topics: map[string]redeliver.Policy{"b b": {}, "a a": {}}}, []string{"orders", "orders"}, handle,
			[]string{"NackDelay", "topics[1]", "Group", "Policy.MaxRetries", `Topics["a a"]`, `Topics["b b"]`, "MaxInFlight", "DrainTimeout", "Sarama.Consumer.Offsets.AutoCommit.Enable"}},
		"names": {client, kafka.Config{Group: "billing", Names: kafka.Names{DLQ: func(topic, _ string) string { return topic }}}, []string{"orders", "refunds"}, nil,
			[]string{"handler", `Names.DLQ("orders", "billing")`, `Names.DLQ("refunds", "billing")`}},
		"topics":        {client, kafka.Config{Group: "billing"}, []string{"orders", "orders", "a b"}, handle, []string{"topics[1]", "topics[2]"}},
		"closed client": {gone, kafka.Config{Group: "billing"}, []string{"orders"}, handle, []string{"client"}},
		"no autocommit": {careful, kafka.Config{Group: "billing"}, []string{"orders"}, handle, []string{"Sarama.Consumer.Offsets.AutoCommit.Enable"}},
		"no group":      {client, kafka.Config{}, []string{"orders"}, handle, []string{"Group"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := kafka.Consume(t.Context(), c.client, c.cfg, c.topics, c.handle)
			bad, ok := errors.AsType[*redeliver.ConfigError](err)
			if !ok || !strings.HasPrefix(err.Error(), "kafka: ") {
				t.Fatalf("%v", err)
			}
			var fields []string
			for _, p := range bad.Problems {
				fields = append(fields, p.Field)
			}
			if !slices.Equal(fields, c.want) {
				t.Errorf("refused for %q, want %q:\n%v", fields, c.want, err)
			}
		})
	}
}

func TestConsumeReportsTheProblemsOfAllTopics(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders", "refunds").ListenAddrs()
	compact := "compact"
	if _, err := kadm.NewClient(independent(t, addrs)).CreateTopics(t.Context(), 1, 1, map[string]*string{"cleanup.policy": &compact},
		"orders.billing.dlq", "refunds.billing.dlq"); err != nil {
		t.Fatal(err)
	}
	err := kafka.Consume(t.Context(), saramaClient(t, addrs), kafka.Config{Group: "billing"}, []string{"orders", "refunds", "nowhere", "nowhere-else"},
		func(context.Context, *sarama.ConsumerMessage) error { return nil })
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || !strings.Contains(err.Error(), "nowhere does not exist") || !strings.Contains(err.Error(), "nowhere-else does not exist") {
		t.Fatalf("%v", err)
	}
	for _, topic := range []string{"orders", "refunds"} {
		if field := "topic " + topic + ".billing.dlq cleanup.policy"; !slices.ContainsFunc(bad.Problems, func(p redeliver.Problem) bool { return p.Field == field }) {
			t.Errorf("%s is not in the error: %v", field, bad)
		}
	}
}

// With a misspelled name, the topic that was meant would run the default policy.
func TestAPolicyOfATopicThatDoesNotExistIsRefused(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders", "mails").ListenAddrs(), topic: "orders", group: "billing"}
	handle := func(context.Context, *sarama.ConsumerMessage) error { return nil }
	client, group := ownGroup(t, p.addrs, p.group)
	for name, start := range map[string]func(kafka.Config) error{
		"Subscribe": func(cfg kafka.Config) error {
			cfg.Brokers = p.addrs
			c, _ := openClient(t, cfg)
			_, err := c.Subscriber().Subscribe(t.Context(), p.topic)
			return err
		},
		"Consume": func(cfg kafka.Config) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // Consume returns at its end, without an error
			defer cancel()
			return kafka.Consume(ctx, client, cfg, []string{p.topic}, handle)
		},
		"Wrap": func(cfg kafka.Config) error {
			w, err := kafka.Wrap(t.Context(), client, group, cfg, []string{p.topic}, handle)
			if err == nil {
				err = w.Close(context.Background())
			}
			return err
		},
	} {
		cfg := kafka.Config{Group: p.group, Policy: quick(1), Topics: map[string]redeliver.Policy{"orders": quick(2), "mails": quick(3)}}
		if err := start(cfg); err != nil {
			t.Errorf("%s, with the names of topics: %v", name, err)
		}
		cfg.Topics["ordesr"] = quick(2)
		if err := start(cfg); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), `Topics["ordesr"]`) || strings.Contains(err.Error(), "mails") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
