package pubsub

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// An entry named StateKey on the origin belongs to the user. It is reported and not trusted, and the handler and the
// DLQ get it unchanged.
func TestStateEntryOnTheOriginBelongsToTheUser(t *testing.T) {
	for name, value := range map[string]string{
		"of a dead letter": `{"attempt":"50","group":"billing","origin":"orders","id":"another","due":"2100-01-01T00:00:00.000Z","reason":"exhausted"}`,
		"no state":         "mine \xff\x00",
		"empty":            "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sink := newMemoryBroker(), &recordingSink{}
				m := b.member(t, "billing")
				cfg := checkConfig(m, m)
				cfg.Sink, cfg.Policy = sink, redeliver.Policy{MaxRetries: 2}
				attempts := 0
				serve(t, cfg, func(msg *message.Message) error {
					attempts++
					if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() != attempts || st.ID != "a" {
						t.Errorf("run %d has the state %+v", attempts, st)
					}
					if got, ok := msg.Metadata[StateKey]; !ok || got != value {
						t.Errorf("run %d has the entry %q, want %q", attempts, got, value)
					}
					return errors.New("declined")
				})
				msg := message.NewMessage("a", nil)
				msg.Metadata[StateKey] = value
				b.put("orders", msg)
				advance(time.Minute)
				if found := eventsOf[redeliver.HeadersIgnored](sink); attempts != 3 || len(found) != 1 || found[0].ID != "a" {
					t.Errorf("%d runs, reported %+v", attempts, found)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				dead := b.topics["orders.billing.dlq"]
				if len(dead) != 1 {
					t.Fatalf("%d dead letters", len(dead))
				}
				rec := newRecord(dead[0], true)
				if len(rec.headers) == 0 || rec.metadata[StateKey] != value {
					t.Errorf("the dead letter has %q", dead[0].Metadata)
				}
			})
		})
	}
}

// A delayed publish reaches all groups of its topic, and none before it is due.
func TestDelayedPublishReachesAllGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBroker()
		begin := time.Now()
		var mu sync.Mutex
		runs := make(map[string]int)
		var billing *mq.Client
		for _, group := range []string{"mail", "billing"} {
			m := b.member(t, group)
			cfg := checkConfig(m, m)
			cfg.Group = group
			billing = serve(t, cfg, func(*message.Message) error {
				if time.Since(begin) < 90*time.Second {
					t.Errorf("%s got it after %s", group, time.Since(begin))
				}
				mu.Lock()
				defer mu.Unlock()
				runs[group]++
				return nil
			})
		}
		msg := message.NewMessage("a", nil)
		delay.Message(msg, delay.For(90*time.Second))
		if err := billing.Publisher().Publish("orders", msg); err != nil {
			t.Fatal(err)
		}
		advance(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if runs["mail"] != 1 || runs["billing"] != 1 {
			t.Errorf("ran %v", runs)
		}
	})
}
