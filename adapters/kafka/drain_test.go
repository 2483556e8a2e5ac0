package kafka_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

// A retry that settles in a drain may be above others that wait.
func TestOnKafkaTheNextOwnerSkipsRecordsSettledInADrain(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	topic := p.ours("retry.1h")
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, RetryPartitions: 1, DrainTimeout: longDrain,
		Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}}}
	c, ev := openClient(t, cfg)
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan *message.Message, 1), make(chan struct{})
	route(t, c, p.topic, func(msg *message.Message) error {
		entered <- msg
		<-leave
		return nil
	})
	ev.awaitJoined(t, 1)
	now := time.Now()
	waiting := func(id string, wait time.Duration) *kgo.Record {
		return ours(topic, id, redeliver.State{
			ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: now.Add(wait), Source: redeliver.Source{Known: true},
		})
	}
	put(t, p.addrs, waiting("below", 30*time.Minute), waiting("runs", 0), waiting("above", 30*time.Minute))
	closed := beginClose(t, c, <-entered)
	close(leave)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if ran := ev.attempts(); len(ran) != 1 || ran["runs"] != 1 {
		t.Errorf("ran %v, want the one that was due", ran)
	}
	if off := unacked(t, p.addrs, p.group, topic, 0); off != 0 {
		t.Errorf("committed up to %d, want 0: the first waits", off)
	}
	next, after := openClient(t, cfg)
	route(t, next, p.topic, func(*message.Message) error { return nil })
	eventually(t, "the others wait", func() bool { return after.lastLoad() == observe.Load{Held: 2} })
	if ran := after.attempts(); len(ran) != 0 {
		t.Errorf("then ran %v, want none", ran)
	}
}

// longDrain is a drain timeout that no test reaches.
const longDrain = 50 * time.Second

// receiveThree subscribes to a partition with the records a0, a1, b and c, and receives all but a1. The first two share
// a key, so a1 waits for a0.
func receiveThree(t *testing.T, p fixture, cfg kafka.Config) (c *mq.Client, out <-chan *message.Message, msgs map[string]*message.Message) {
	t.Helper()
	c, _ = openClient(t, cfg)
	out, err := c.Subscriber().Subscribe(context.Background(), p.topic)
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(id, key string) *kgo.Record {
		rec := order(p.topic, id)
		rec.Key = []byte(key)
		return rec
	}
	put(t, p.addrs, keyed("a0", "a"), keyed("a1", "a"), keyed("b", "b"), keyed("c", "c"))
	msgs = make(map[string]*message.Message)
	for range 3 {
		msg := <-out
		msgs[msg.UUID] = msg
	}
	if msgs["a0"] == nil || msgs["b"] == nil || msgs["c"] == nil {
		t.Fatalf("received %v", msgs)
	}
	return c, out, msgs
}

// beginClose begins to close a client, and returns when the drain of msg's lane has begun.
func beginClose(t *testing.T, c *mq.Client, msg *message.Message) <-chan error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.Background()) }()
	drain := &engine.FromContext(msg.Context()).Sub().Drain
	eventually(t, "it drains", drain.Draining)
	return closed
}

// A subscriber that receives no more messages does not block the drain.
func TestOnKafkaADrainReturnsUnreceivedMessages(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, _, msgs := receiveThree(t, p, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: longDrain})
	msgs["a0"].Ack()
	begin := time.Now()
	closed := beginClose(t, c, msgs["c"])
	msgs["b"].Ack()
	msgs["c"].Ack()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took >= longDrain {
		t.Errorf("waited %s for a consumer that receives no more", took)
	}
	if off := unacked(t, p.addrs, p.group, p.topic, 0); off != 1 {
		t.Errorf("committed up to %d, want 1: a1 has not run", off)
	}
}

func TestOnKafkaADrainBeginsNoMessageBehindAReturnedOne(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: longDrain}
	c, out, msgs := receiveThree(t, p, cfg)
	closed := beginClose(t, c, msgs["c"])
	msgs["a0"].Nack()
	msgs["b"].Ack()
	msgs["c"].Ack()
	for msg := range out {
		t.Errorf("%s is delivered, although a0 of the same key has not run", msg.UUID)
		msg.Ack()
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if off := unacked(t, p.addrs, p.group, p.topic, 0); off != 0 {
		t.Errorf("committed up to %d, want 0: a0 has not run", off)
	}
}

// A copy that was out of date is settled without a handler, while a record with a lower offset still waits. The copy
// must not run again, because with OrderThroughRetries nothing would show that it is a copy.
func TestOnKafkaADroppedCopyDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	levels := []time.Duration{200 * time.Millisecond, time.Hour}
	cfg := kafka.Config{Policy: perKeyPolicy(levels...), MaxInFlight: 10}
	p.provision(t, cfg.Policy)
	origin := []*kgo.Record{keyed(p, "waits", "waits"), keyed(p, "twice", "twice")}
	put(t, p.addrs, origin...)
	put(t, p.addrs,
		leftOnLevel(p, levels[1], "waits", "waits", 0, 1, time.Hour, origin[0].Timestamp),
		leftOnLevel(p, levels[1], "twice", "twice", 1, 1, 0, origin[1].Timestamp),
		leftOnLevel(p, levels[0], "twice", "twice", 1, 2, time.Second, origin[1].Timestamp),
	)
	succeeds := func(context.Context, *sarama.ConsumerMessage) error { return nil }
	ev, stop := consume(t, p, cfg, succeeds)
	ev.awaitEnds(t, "twice")
	eventually(t, "its copy is dropped", func() bool { return ev.lastLoad() == observe.Load{Held: 1} })
	stop()
	if ran := ev.attempts(); ran["twice"] != 1 || ran["waits"] != 0 {
		t.Errorf("ran %v", ran)
	}
	after, stop := consume(t, p, cfg, succeeds)
	put(t, p.addrs, keyed(p, "twice", "last")) // a copy would run before it
	after.awaitEnds(t, "last")
	stop()
	if ran := after.attempts(); len(ran) != 1 {
		t.Errorf("then ran %v, want only the last", ran)
	}
}

// Attempts that a rebalance cuts do not count, so nothing else ends them if members come and go.
func TestAttemptsThatEveryRebalanceCutsAreReported(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	join := func() (*mq.Client, *events) {
		cfg := fastMetadataConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		cfg.Consumer.Group.Rebalance.Timeout = 2 * time.Second
		c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: cfg, DrainTimeout: 50 * time.Millisecond})
		route(t, c, p.topic, func(msg *message.Message) error {
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		return c, ev
	}
	putOnPartitions(t, p, "long-", 4)
	_, ev := join()
	joined := 0
	run := func() {
		joined++
		ev.awaitJoined(t, joined)
		eventually(t, "messages run", func() bool { return ev.lastLoad().InFlight > 0 })
	}
	run()
	for range 2 {
		second, _ := join()
		run()
		if err := second.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		run()
	}
	ev.await(t, 1, isChangeWithError("attempts are cut", ""))
}

// runUntilDrained is a handler that ends some time after its member has begun to drain, which is much later than a
// DrainTimeout of 50 ms, or when the test says so.
func runUntilDrained(ctx context.Context, end *atomic.Bool) error {
	drain := &engine.FromContext(ctx).Sub().Drain
	for !drain.Draining() {
		if end.Load() {
			return nil
		}
		if err := wait.For(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return wait.For(ctx, 600*time.Millisecond)
}

// A rebalance waits for attempts that take longer than DrainTimeout, so each of them begins once.
func TestRebalancesWaitForLongAttempts(t *testing.T) {
	t.Parallel()
	for name, strategy := range map[string]func() sarama.BalanceStrategy{
		"eager": sarama.NewBalanceStrategyRange, "cooperative": sarama.NewBalanceStrategyCooperativeSticky,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
			var end atomic.Bool
			join := func() (*mq.Client, *events) {
				cfg := fastMetadataConfig()
				cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
				c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: cfg, DrainTimeout: 50 * time.Millisecond})
				route(t, c, p.topic, func(msg *message.Message) error { return runUntilDrained(msg.Context(), &end) })
				return c, ev
			}
			_, ev := join()
			admin := kadm.NewClient(independent(t, p.addrs))
			for round := range 3 {
				eventually(t, "the first one is alone", func() bool {
					groups, err := admin.DescribeGroups(t.Context(), p.group)
					return err == nil && groups[p.group].State == "Stable" && len(groups[p.group].Members) == 1
				})
				end.Store(false)
				ids := putOnPartitions(t, p, string(rune('a'+round)), 4)
				eventually(t, "all run", func() bool { return ev.lastLoad().InFlight == len(ids) })
				second, after := join()
				after.awaitJoined(t, 1)
				end.Store(true) // a cooperative rebalance may move none of their partitions
				ev.awaitEnds(t, ids...)
				if err := second.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if ran := ev.attempts()[id] + after.attempts()[id]; ran != 1 {
						t.Errorf("%s ran %d times, want once", id, ran)
					}
				}
				if cut := len(all[redeliver.Abandoned](ev)) + len(all[redeliver.Abandoned](after)); cut > 0 {
					t.Errorf("round %d: %d attempts were cut", round, cut)
				}
			}
		})
	}
}

func TestOnKafkaAWrappedGroupWaitsForLongAttempts(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	h := func(ctx context.Context, _ *sarama.ConsumerMessage) error {
		return runUntilDrained(ctx, new(atomic.Bool))
	}
	cfg := kafka.Config{Policy: quick(1), DrainTimeout: 50 * time.Millisecond}
	ev, _ := wrap(t, p, cfg, h)
	put(t, p.addrs, order(p.topic, "a"))
	eventually(t, "it runs", func() bool { return ev.lastLoad().InFlight == 1 })
	wrap(t, p, cfg, h)
	ev.awaitEnds(t, "a")
	if cut := all[redeliver.Abandoned](ev); len(cut) > 0 {
		t.Errorf("cut: %v", cut)
	}
}

// The end of a member that drains for a rebalance takes no longer than DrainTimeout.
func TestAMemberThatEndsDoesNotWaitForItsRebalance(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: 200 * time.Millisecond}
	first, before := openClient(t, cfg)
	running := make(chan *message.Message, 1)
	route(t, first, p.topic, func(msg *message.Message) error {
		running <- msg
		<-msg.Context().Done()
		return msg.Context().Err()
	})
	before.awaitJoined(t, 1)
	put(t, p.addrs, order(p.topic, "endless"))
	drain := &engine.FromContext((<-running).Context()).Sub().Drain
	second, _ := openClient(t, cfg)
	route(t, second, p.topic, func(*message.Message) error { return nil })
	eventually(t, "the first one drains", drain.Draining)
	begin := time.Now()
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > longDrain/2 {
		t.Errorf("Close took %s, it waited for the rebalance", took)
	}
	before.await(t, 1, is[redeliver.Abandoned])
}
