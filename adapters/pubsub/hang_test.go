package pubsub

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// A Publish that hangs is awaited and not repeated, so that the message exists once when the broker is back. A Publish
// that finally fails is repeated.
func TestHangingPublishIsAwaited(t *testing.T) {
	for name, fails := range map[string]bool{"it succeeds": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sink, back := newMemoryBroker(), &recordingSink{}, make(chan struct{})
				m := b.member(t, "billing")
				var mu sync.Mutex
				var topics []string // of each Publish
				cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
					mu.Lock()
					topics = append(topics, topic)
					first := len(topics) == 1
					mu.Unlock()
					<-back
					if first && fails {
						return errors.New("the connection is closed")
					}
					return m.Publish(topic, msg)
				}}, m)
				cfg.Sink, cfg.Policy = sink, redeliver.Policy{Backoff: redeliver.Fixed(90 * time.Second), Levels: []time.Duration{time.Second, time.Minute}}
				var ran []int
				serve(t, cfg, func(msg *message.Message) error {
					st, _ := redeliver.FromContext(msg.Context())
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, st.Attempt())
					if st.Attempt() == 1 {
						return errors.New("boom")
					}
					return nil
				})
				b.put("orders", message.NewMessage("a", []byte("payload")))
				advance(time.Hour) // the message becomes due meanwhile, so that a new Publish would go to another topic
				mu.Lock()
				if n := len(topics); n != 1 {
					t.Errorf("%d calls of Publish hang, want 1", n)
				}
				if failures := eventsOf[redeliver.PublishFailed](sink); len(failures) != 1 || failures[0].State.ID != "a" || failures[0].Where != topics[0] {
					t.Errorf("the sink got %+v about the Publish that hangs", failures)
				}
				mu.Unlock()
				close(back)
				advance(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(ran, []int{1, 2}) {
					t.Errorf("ran as attempts %v, want 1 and 2", ran)
				}
				scheduled := eventsOf[redeliver.RetryScheduled](sink)
				if len(scheduled) != 1 {
					t.Fatalf("%d RetryScheduled events, want 1", len(scheduled))
				}
				if fails && topics[1] == topics[0] {
					t.Errorf("published to %q, want the second Publish on the topic where the message belongs by then", topics)
				}
				if where := scheduled[0].Where; !fails && where != topics[0] || fails && where != topics[1] {
					t.Errorf("the event says %s, published to %q", where, topics)
				}
			})
		})
	}
}
