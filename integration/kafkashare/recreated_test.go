package kafkashare_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// Clients of franz-go neither read nor write a topic that was deleted and created again, so they are replaced.
func TestTopicsMayBeCreatedAgain(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	origin, groups := kafkatest.NewShare(t, addrs).Origin(t, 1)
	seen := newEvents()
	c := open(t, kafkashare.Config{Group: groups[0], Sink: seen, Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 1, Backoff: redeliver.Fixed(50 * time.Millisecond)}})
	messages, err := c.Subscriber().Subscribe(t.Context(), origin)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for msg := range messages {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() == 1 {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
	}()
	run := func(id string) {
		awaitTrue(t, id+" is published", func() bool {
			return c.Publisher().Publish(origin, message.NewMessage(id, nil)) == nil
		})
		await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == id && e.State.Attempts == 1 })
	}
	run("first")
	adm := kadm.NewClient(connect(t))
	all, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range all.Names() {
		if strings.HasPrefix(name, origin) {
			names = append(names, name)
		}
	}
	deleted, err := adm.DeleteTopics(t.Context(), names...)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	created, err := adm.CreateTopics(t.Context(), 1, 1, nil, names...) // fewer partitions than before
	if err = errors.Join(err, created.Error()); err != nil {
		t.Fatal(err)
	}
	run("second")
}
