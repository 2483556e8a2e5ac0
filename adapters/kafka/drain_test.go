package kafka_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/engine"
)

// On a delay topic a key's records come in the order in which they are due, so
// one that was read early may stand behind one that was read late. A drain that
// gave up the late one gave up the early one with it, the mark stayed below what
// had run, and that ran again.
func TestOnKafkaADrainBeginsWhatIsOwedBehindWhatIsNot(t *testing.T) {
	t.Parallel()
	for name, due := range map[string]time.Duration{ // of the owed one; the drain begins after 600 ms
		"due before the drain": 400 * time.Millisecond,
		"due within the drain": 700 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			addrs, topic := p.addrs, p.ours("retry.1s")
			cfg := kafka.Config{Brokers: addrs, Group: p.group, MaxRetriesInFlight: 1, RetryPartitions: 1, DrainTimeout: 20 * time.Second,
				Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second}}}
			c, ev := open(t, cfg)
			if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
				t.Fatal(err)
			}
			entered, leave := make(chan *message.Message, 1), make(chan struct{})
			var mu sync.Mutex
			runs := make(map[string]int)
			route(t, c, p.topic, func(msg *message.Message) error {
				id := string(msg.Payload)
				mu.Lock()
				runs[id]++
				mu.Unlock()
				if id == "runs" {
					entered <- msg // and has the only slot
					<-leave
				}
				return nil
			})
			ev.joined(t, 1)
			now := time.Now()
			waiting := func(id, key string, wait time.Duration) *kgo.Record {
				rec := ours(topic, id, redeliver.State{
					ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: now.Add(wait), Source: redeliver.Source{Known: true},
				})
				rec.Key = []byte(key)
				return rec
			}
			put(t, addrs, waiting("owed", "k", due), waiting("runs", "r", 0), waiting("not owed", "k", 300*time.Millisecond))
			holds := <-entered
			<-time.After(time.Until(now.Add(600 * time.Millisecond))) // for the time when they are due
			closed := closing(t, c, holds)
			<-time.After(time.Until(now.Add(850 * time.Millisecond))) // for the time when the later one is due
			close(leave)
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if runs["runs"] != 1 || runs["owed"] != 1 || runs["not owed"] != 0 {
				t.Errorf("ran %v, want the one that ran and the one below it, once each", runs)
			}
			if off := unacked(t, addrs, p.group, topic, 0); off != 2 {
				t.Errorf("committed up to %d, want 2: both have run", off)
			}
		})
	}
}

// drains is a drain timeout that does not end by itself.
const drains = 50 * time.Second

// taken subscribes by hand to a partition with the records a0, a1, b and c, of
// which the first two have one key, and takes all but a1, which stands behind a0.
func taken(t *testing.T, p place, cfg kafka.Config) (c *kafka.Client, out <-chan *message.Message, msgs map[string]*message.Message) {
	t.Helper()
	c, _ = open(t, cfg)
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
		t.Fatalf("took %v", msgs)
	}
	return c, out, msgs
}

// closing begins to close a client and returns when the drain of msg's lane has begun.
func closing(t *testing.T, c *kafka.Client, msg *message.Message) <-chan error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- c.Close(context.Background()) }()
	drain := &engine.FromContext(msg.Context()).Sub().Drain
	eventually(t, "it drains", drain.Draining)
	return closed
}

// A drain took back what lay ready when as many messages lay there at two looks,
// 50 ms apart: also under the hands of a consumer that was busy, or that took
// them as fast as they came. What had run above them ran again, and a later one
// of a key before an earlier one.
func TestOnKafkaADrainLeavesWhatLiesReadyToABusyConsumer(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, out, msgs := taken(t, p, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: drains})
	msgs["b"].Ack()
	msgs["a0"].Ack()
	eventually(t, "a1 lies ready", func() bool { return len(out) == 1 })
	closed := closing(t, c, msgs["c"])
	<-time.After(time.Second) // the consumer is busy with c
	msgs["c"].Ack()
	a1, ok := <-out
	if !ok {
		t.Fatal("a1 was taken back")
	}
	a1.Ack()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if off := unacked(t, p.addrs, p.group, p.topic, 0); off != 4 {
		t.Errorf("committed up to %d, want 4: all have run", off)
	}
}

// One that takes no more holds up nobody.
func TestOnKafkaADrainTakesBackWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, out, msgs := taken(t, p, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: drains})
	msgs["a0"].Ack()
	eventually(t, "a1 lies ready", func() bool { return len(out) == 1 })
	begin := time.Now()
	closed := closing(t, c, msgs["c"])
	msgs["b"].Ack()
	msgs["c"].Ack()
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took >= drains {
		t.Errorf("waited %s for a consumer that takes no more", took)
	}
	if off := unacked(t, p.addrs, p.group, p.topic, 0); off != 1 {
		t.Errorf("committed up to %d, want 1: a1 has not run", off)
	}
}

// What is nacked at the end comes back uncounted, and the next of its key must
// not run before it.
func TestOnKafkaADrainBeginsNothingBehindWhatComesBack(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), DrainTimeout: drains}
	c, out, msgs := taken(t, p, cfg)
	closed := closing(t, c, msgs["c"])
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

// A drain owed nothing to what stood above what waits and was settled without a handler,
// a copy of what had gone further, say. What waits was given up, the mark stayed below
// it, and with it the next owner ran a message that was settled.
func TestOnKafkaADrainMovesOnWhatStandsBelowACopy(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	levels := []time.Duration{200 * time.Millisecond, time.Hour}
	cfg := kafka.Config{Policy: waitsBehind(levels...), MaxInFlight: 10}
	provision, _ := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: cfg.Policy})
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	origin := []*kgo.Record{keyed(p, "waits", "waits"), keyed(p, "twice", "twice")}
	put(t, p.addrs, origin...)
	put(t, p.addrs,
		left(p, levels[1], "waits", "waits", 0, 1, time.Hour, origin[0].Timestamp),
		left(p, levels[1], "twice", "twice", 1, 1, 0, origin[1].Timestamp),
		left(p, levels[0], "twice", "twice", 1, 2, time.Second, origin[1].Timestamp),
	)
	ev, stop := consume(t, p, cfg, func(context.Context, *sarama.ConsumerMessage) error { return nil })
	ev.awaitEnds(t, "twice")
	eventually(t, "its copy is dropped", func() bool { return ev.inHand() == redeliver.Load{Held: 1} })
	stop()
	if off := unacked(t, p.addrs, p.group, kafka.DelayTopic(p.topic, p.group, levels[1]), 0); off != 2 {
		t.Errorf("committed up to %d, want 2: the copy comes again", off)
	}
	if told := runAgain(ev); len(told) > 0 {
		t.Errorf("told %+v", told)
	}
	if ran := ev.attempts(); ran["twice"] != 1 || ran["waits"] != 0 {
		t.Errorf("ran %v", ran)
	}
}
