package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// ownGroup makes a consumer group that a service runs itself.
func ownGroup(t *testing.T, addrs []string, name string) (sarama.Client, sarama.ConsumerGroup) {
	t.Helper()
	cfg := withLongTimeouts(nil)
	cfg.Consumer.MaxWaitTime = 50 * time.Millisecond
	client, err := sarama.NewClient(addrs, cfg)
	if err != nil {
		t.Fatal(err)
	}
	group, err := sarama.NewConsumerGroupFromClient(name, client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(group.Close(), client.Close()); err != nil {
			t.Errorf("the caller's group and client: %v", err)
		}
	})
	return client, group
}

// wrap calls h for the topic's records in the service's own loop, until the test ends.
func wrap(t *testing.T, p fixture, cfg kafka.Config, h kafka.Handler) (*events, *kafka.Wrapped) {
	t.Helper()
	return runWrapped(t, p, cfg, func(ctx context.Context, client sarama.Client, group sarama.ConsumerGroup, cfg kafka.Config) (*kafka.Wrapped, error) {
		return kafka.Wrap(ctx, client, group, cfg, []string{p.topic}, h)
	})
}

// runWrapped runs what open returns in the service's own loop, until the test ends.
func runWrapped(t *testing.T, p fixture, cfg kafka.Config, open func(context.Context, sarama.Client, sarama.ConsumerGroup, kafka.Config) (*kafka.Wrapped, error)) (*events, *kafka.Wrapped) {
	t.Helper()
	ev := newEvents()
	cfg.Group, cfg.Sink, cfg.Policy = p.group, ev, withoutOutages(cfg.Policy)
	client, group := ownGroup(t, p.addrs, p.group)
	ctx, cancel := context.WithCancel(context.Background())
	w, err := open(ctx, client, group, cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, w.Topics(), w); err != nil && ctx.Err() == nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		for range 2 {
			if err := w.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	ev.awaitJoined(t, 1)
	return ev, w
}

func TestOnKafkaWrapAppliesEachAnswer(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	var mu sync.Mutex
	runs := make(map[string][]string)
	ev, _ := wrap(t, p, kafka.Config{Policy: quick(2)}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		mu.Lock()
		runs[string(rec.Key)] = append(runs[string(rec.Key)], recordText(rec))
		mu.Unlock()
		if string(rec.Key) == "recovers" && st.Attempt() > 2 {
			return nil
		}
		if string(rec.Key) == "succeeds" {
			return nil
		}
		return errDeclined
	})
	write(t, p.addrs, order(p.topic, "succeeds"), order(p.topic, "recovers"), order(p.topic, "fails"))
	ev.awaitEnds(t, "succeeds", "recovers", "fails")
	mu.Lock()
	defer mu.Unlock()
	for id, want := range map[string]int{"succeeds": 1, "recovers": 3, "fails": 3} {
		if len(runs[id]) != want || len(slices.Compact(slices.Clone(runs[id]))) != 1 {
			t.Errorf("%s ran as %q, want the same %d times", id, runs[id], want)
		}
	}
	if rec := read(t, p.addrs, p.ours("dlq"), 1)[0]; string(rec.Key) != "fails" {
		t.Errorf("%s is in the DLQ", rec.Key)
	}
	ev.noneEarly(t)
	ev.noFindings(t)
}

// A service with its own group gets batches, and each record has its own answer.
func TestWrapBatchAppliesEachAnswer(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	var mu sync.Mutex
	var batches []string
	ev, _ := runWrapped(t, p, kafka.Config{Policy: quick(1)}, func(ctx context.Context, client sarama.Client, group sarama.ConsumerGroup, cfg kafka.Config) (*kafka.Wrapped, error) {
		return kafka.WrapBatch(ctx, client, group, cfg, []string{p.topic}, redeliver.BatchConfig{Size: 3, Timeout: time.Minute}, func(_ context.Context, b *kafka.Batch) error {
			var ids []string
			for _, m := range b.Messages {
				id := string(m.Record.Key)
				ids = append(ids, id+string(rune('0'+m.State().Attempt())))
				if id == "fails" || id == "recovers" && m.State().Attempt() == 1 {
					m.Answer(errDeclined)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(ids)
			batches = append(batches, strings.Join(ids, " "))
			return nil
		})
	})
	write(t, p.addrs, order(p.topic, "succeeds"), order(p.topic, "recovers"), order(p.topic, "fails"))
	ev.awaitEnds(t, "succeeds", "recovers", "fails")
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(batches)
	if want := []string{"fails1 recovers1 succeeds1", "fails2", "recovers2"}; !slices.Equal(batches, want) {
		t.Errorf("the batches are %q, want %q", batches, want)
	}
	if rec := read(t, p.addrs, p.ours("dlq"), 1)[0]; string(rec.Key) != "fails" {
		t.Errorf("%s is in the DLQ", rec.Key)
	}
	ev.noFindings(t)
}

// While other members of the group use the protocol of KIP-848, the broker does not describe the wrapped one.
func TestWrapRunsInAGroupThatCannotBeDescribed(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	describeNoMembers(cluster)
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	ev, _ := wrap(t, p, kafka.Config{Policy: quick(1)}, func(context.Context, *sarama.ConsumerMessage) error { return nil })
	write(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
	ev.noFindings(t)
}

// Wrap reads all topics in one member, Consume in one member each.
func TestDropInsReadTopicsWithDifferentPolicies(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders", "refunds").ListenAddrs()
	topics := []string{"orders", "refunds"}
	handle := func(context.Context, *sarama.ConsumerMessage) error { return errDeclined }
	for name, run := range map[string]func(t *testing.T, ctx context.Context, cfg kafka.Config) error{
		"consume": func(t *testing.T, ctx context.Context, cfg kafka.Config) error {
			t.Helper()
			return kafka.Consume(ctx, saramaClient(t, addrs), cfg, topics, handle)
		},
		"wrap": func(t *testing.T, ctx context.Context, cfg kafka.Config) error {
			t.Helper()
			client, group := ownGroup(t, addrs, cfg.Group)
			w, err := kafka.Wrap(ctx, client, group, cfg, topics, handle)
			for err == nil && ctx.Err() == nil {
				err = group.Consume(ctx, w.Topics(), w)
			}
			return errors.Join(err, w.Close(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ev := newEvents()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- run(t, ctx, kafka.Config{Group: name, Sink: ev, Policy: quick(1), Topics: map[string]redeliver.Policy{"refunds": quick(2)}})
			}()
			write(t, addrs, order("orders", name), order("refunds", name))
			dead := make(map[string]int)
			for _, e := range ev.await(t, 2, func(e redeliver.Event) bool {
				d, ok := e.(redeliver.DeadLettered)
				return ok && d.State.ID == name // and not the other topic's
			}) {
				d, _ := e.(redeliver.DeadLettered)
				dead[d.Where] = d.State.Attempts
			}
			cancel()
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if dead["orders."+name+".dlq"] != 2 || dead["refunds."+name+".dlq"] != 3 {
				t.Errorf("dead-lettered after so many attempts: %v", dead)
			}
		})
	}
}

// A level of an older policy appears while the session runs: the next one reads it.
func TestWrapReadsNewLevels(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	ran := make(chan string, 1)
	old := p.ours("retry.3s")
	cfg := kafka.Config{Policy: quick(1)}
	ev := newEvents()
	cfg.Group, cfg.Sink, cfg.Policy = p.group, ev, withoutOutages(cfg.Policy)
	client, group := ownGroup(t, p.addrs, p.group)
	w, err := kafka.Wrap(t.Context(), client, group, cfg, []string{p.topic}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		ran <- string(rec.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close(context.Background()) }()
	if slices.Contains(w.Topics(), old) {
		t.Fatalf("%s exists already", old)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, w.Topics(), w); err != nil && ctx.Err() == nil && !errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				t.Error(err)
			}
		}
	}()
	defer func() { cancel(); <-done }()
	ev.awaitJoined(t, 1)
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, p.addrs)), 1, nil, old)
	kafka.CheckTopics(w)
	ev.awaitJoined(t, 2)
	put(t, p.addrs, ours(old, "a", redeliver.State{ID: "a", Group: p.group, Origin: p.topic, Attempts: 1, Due: time.Now(), Source: redeliver.Source{Known: true}}))
	if id := <-ran; id != "a" {
		t.Errorf("%s ran", id)
	}
}

func TestWrapRefusesABadCall(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	handle := func(context.Context, *sarama.ConsumerMessage) error { t.Error("a handler runs"); return nil }
	t.Run("settings", func(t *testing.T) {
		cfg := sarama.NewConfig() // Offsets.Initial is Newest
		cfg.Consumer.Offsets.AutoCommit.Enable = false
		cfg.Net.ReadTimeout = 5 * time.Second // shorter than the default of DrainTimeout
		client, err := sarama.NewClient(p.addrs, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.Close() }()
		perKey := redeliver.Policy{Order: redeliver.OrderThroughRetries}
		_, err = kafka.Wrap(t.Context(), client, nil, kafka.Config{
			InstanceID: "a", MaxInFlight: -1, MaxRetriesInFlight: 5, Topics: map[string]redeliver.Policy{"b": perKey, "a": perKey, "c": perKey},
		}, []string{"orders"}, handle)
		bad, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok {
			t.Fatal(err)
		}
		var fields []string
		for _, p := range bad.Problems {
			fields = append(fields, p.Field)
		}
		if want := []string{
			"group", "InstanceID", "Sarama.Consumer.Offsets.Initial", "Sarama.Net.ReadTimeout", "Group", `Topics["a"].Order`, `Topics["b"].Order`, `Topics["c"].Order`,
			"MaxInFlight", "Sarama.Consumer.Offsets.AutoCommit.Enable",
		}; !slices.Equal(fields, want) {
			t.Errorf("refused for %q, want %q: %v", fields, want, err)
		}
		_, err = kafka.WrapBatch(t.Context(), client, nil, kafka.Config{Group: p.group}, []string{"orders"}, redeliver.BatchConfig{Size: 1000}, nil)
		for _, field := range []string{"group", "handler", "Size", "AutoCommit"} {
			if err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("WrapBatch does not refuse %s: %v", field, err)
			}
		}
		cfg.Consumer.Offsets.Initial, cfg.Net.ReadTimeout = sarama.OffsetOldest, 30*time.Second
		_, group := ownGroup(t, p.addrs, p.group)
		_, err = kafka.Wrap(t.Context(), client, group, kafka.Config{Group: p.group}, []string{"orders"}, handle)
		if err == nil || !strings.Contains(err.Error(), "AutoCommit") {
			t.Errorf("without AutoCommit: %v", err)
		}
	})
	for name, c := range map[string]struct {
		group  string
		topics func(*kafka.Wrapped) []string
		want   string
	}{
		"another group":  {"shipping", (*kafka.Wrapped).Topics, "the consumer group of this session is not billing"},
		"some topics":    {"billing", func(w *kafka.Wrapped) []string { return w.Topics()[:1] }, "does not read orders.billing.retry"},
		"topics by hand": {"billing", func(*kafka.Wrapped) []string { return []string{"orders"} }, "Topics was not called"},
	} {
		t.Run(name, func(t *testing.T) {
			client, group := ownGroup(t, p.addrs, c.group)
			w, err := kafka.Wrap(t.Context(), client, group, kafka.Config{Group: p.group, Policy: quick(1)}, []string{"orders"}, handle)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close(context.Background()) }()
			write(t, p.addrs, order("orders", "a"))
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			if err := group.Consume(ctx, c.topics(w), w); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// Sessions that end as soon as they begin do not make the service's loop join without a pause.
func TestAWrappedGroupWhoseSessionsEndAtOncePausesBetweenJoins(t *testing.T) {
	for name, refused := range map[string]kfake.Fault{
		"offsets":    {Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.ClusterAuthorizationFailed, Count: -1},
		"heartbeats": {Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.GroupAuthorizationFailed, Count: -1},
	} {
		t.Run(name, func(t *testing.T) { wrappedSessionsPause(t, refused) })
	}
}

func wrappedSessionsPause(t *testing.T, refused kfake.Fault) {
	t.Helper()
	t.Parallel()
	cluster := fake(t, "orders")
	p := fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	ev := newEvents()
	client, group := ownGroup(t, p.addrs, p.group)
	loop, stop := context.WithCancel(t.Context())
	w, err := kafka.Wrap(loop, client, group, kafka.Config{Group: p.group, Sink: ev, Policy: quick(1)}, []string{p.topic},
		func(context.Context, *sarama.ConsumerMessage) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for loop.Err() == nil {
			_ = group.Consume(loop, w.Topics(), w) // the service joins again, whatever the error is
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	write(t, p.addrs, order(p.topic, "a"))
	ev.awaitEnds(t, "a")
	fault := cluster.Fault(refused)
	joins := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID}) // it joins again
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := joins.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	// The pauses begin with 20 ms, grow by half each time up to a second, and vary by half. Sixteen take at least 3 s.
	if err := joins.Wait(ctx, 17); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("16 joins within %s", took)
	}
	fault.Remove()
	write(t, p.addrs, order(p.topic, "b"))
	ev.awaitEnds(t, "b")
}
