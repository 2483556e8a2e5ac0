package kafka_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// On a delay topic a key's records come in the order in which they are due, so
// one that was read early may stand behind one that was read late. A drain that
// gave up the late one gave up the early one with it, the mark stayed below what
// had run, and that ran again.
func TestOnKafkaADrainBeginsWhatIsOwedBehindWhatIsNot(t *testing.T) {
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
			entered, leave := make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			runs := make(map[string]int)
			route(t, c, p.topic, func(msg *message.Message) error {
				id := string(msg.Payload)
				mu.Lock()
				runs[id]++
				mu.Unlock()
				if id == "runs" {
					close(entered) // and has the only slot
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
			<-entered
			<-time.After(time.Until(now.Add(600 * time.Millisecond))) // for the time when they are due
			closed := make(chan error, 1)
			go func() { closed <- c.Close(t.Context()) }()
			<-time.After(250 * time.Millisecond) // the drain has begun; if not, the test shows less
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
