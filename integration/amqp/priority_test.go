package amqp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// A copy with a priority would wait before older ones, so that RabbitMQ 4.0 would not expire these. It has none while it
// waits and in the DLQ. Handlers, people and a replay see the priority.
func TestCopiesCarryNoPriority(t *testing.T) {
	t.Parallel()
	l := native(t, brokers.RequireRabbitMQ(t), func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(10 * time.Minute), Levels: []time.Duration{10 * time.Minute}}
	})
	var seen []uint8
	l.runConsume(func(ctx context.Context, d amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		l.update(func() { seen = append(seen, d.Priority) })
		if st.Replays > 0 {
			return nil
		}
		return errHandler
	})
	l.write(l.queue, amqp091.Publishing{MessageId: "m", Priority: 9, DeliveryMode: amqp091.Persistent, Body: []byte("urgent")})
	level := l.queue + ".retry.10m"
	l.awaitReady(level, 1)
	wantPlain := func(queue string) {
		t.Helper()
		d := l.getMessage(queue)
		if d.Priority != 0 || d.Headers[amqp.HeaderPriority] != "9" {
			t.Errorf("in %s it has priority %d and the headers %v, want 0, and 9 in a header", queue, d.Priority, d.Headers)
		}
		if err := d.Nack(false, true); err != nil {
			t.Fatal(err)
		}
	}
	wantPlain(level)
	if _, err := l.client.Operations().Release(t.Context(), mq.ReleaseConfig{Topic: l.queue}); err != nil {
		t.Fatal(err)
	}
	l.await("dead letter", func() bool { return len(l.dead["m"]) == 1 })
	wantPlain(l.queue + ".dlq")
	q, err := l.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: l.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "me", Why: "test"}); err != nil || task.Counts.Replayed != 1 {
		t.Errorf("the replay ended with %+v, %v", task, err)
	}
	l.await("commit", func() bool { return l.done["m"] == 1 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if string(seen) != "\x09\x09\x09" {
		t.Errorf("the handler saw the priorities %v, want 9 three times", seen)
	}
}

// userMarshaler sets the property user-id from the metadata.
type userMarshaler struct{ amqp.DefaultMarshaler }

func (m userMarshaler) Marshal(topic string, msg *message.Message) (amqp091.Publishing, error) {
	p, err := m.DefaultMarshaler.Marshal(topic, msg)
	p.UserId = msg.Metadata.Get("user")
	return p, err
}

// The broker accepts a user-id only from a connection of that user. A due delayed publish of another user once ended in
// the DLQ for that.
func TestADelayedPublishOfAnotherUser(t *testing.T) {
	t.Parallel()
	r := brokers.RequireRabbitMQ(t).VirtualHost(t)
	l := newFixture(t, r, nil)
	users := make(map[string]string)
	l.consume(func(msg *message.Message, _ run) error {
		l.update(func() { users[msg.UUID] = amqp.DeliveryFromContext(msg.Context()).UserId })
		return nil
	})
	user, adm := "producer-"+strings.ToLower(unique(t)[len(t.Name()):]), newAdmin(t, r)
	adm.put(t, map[string]any{"password": "p", "tags": ""}, "users", user)
	t.Cleanup(func() { adm.delete(t, "users", user) })
	adm.put(t, map[string]any{"configure": ".*", "write": ".*", "read": ".*"}, "permissions", r.VHost(), user)
	for who, url := range map[string]string{user: strings.Replace(r.URL(), "guest:guest", user+":p", 1), "guest": r.URL()} {
		cfg := l.cfg
		cfg.URLs, cfg.Marshaler = []string{url}, userMarshaler{}
		producer, err := amqp.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close(t.Context())
		msg := message.NewMessage("of "+who, []byte("x"))
		msg.Metadata.Set("user", who)
		delay.Message(msg, delay.For(300*time.Millisecond))
		if err := producer.Publisher().Publish(l.queue, msg); err != nil {
			t.Fatal(err)
		}
	}
	l.awaitEnds([]string{"of guest", "of " + user})
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.dead) > 0 || users["of guest"] != "guest" || users["of "+user] != "" {
		t.Errorf("dead-lettered %v; the handler saw the users %q, want guest's own", l.deadIDsLocked(), users)
	}
}
