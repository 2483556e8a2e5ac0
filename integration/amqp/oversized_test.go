//go:build prove

package amqp_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// maxMessage is the lowered size limit of the broker in these tests.
const maxMessage = 1 << 20

// lowerLimit limits messages to maxMessage on new channels of a node, until the test ends.
func lowerLimit(t testing.TB, r *brokers.Rabbit) {
	t.Helper()
	set := func(ctx context.Context, n string) {
		// 3.10 reads the first, 4.0 the second.
		if _, err := r.Eval(ctx, fmt.Sprintf("application:set_env(rabbit, max_message_size, %[1]s), persistent_term:put(max_message_size, %[1]s), ok.", n)); err != nil {
			t.Fatal(err)
		}
	}
	was, err := r.Eval(t.Context(), "{ok, N} = application:get_env(rabbit, max_message_size), N.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set(context.Background(), strings.TrimSpace(was)) })
	set(t.Context(), fmt.Sprint(maxMessage))
}

// The kit's hostile messages, and one that has become too large for the DLQ, as after an upgrade: RabbitMQ 3.13
// accepted 128 MiB, 4.0 accepts 16. The limit concerns the whole node, and in 4.0 open channels too, so the kit
// cannot publish larger messages there afterwards.
func TestConformanceWithTooLargeMessages(t *testing.T) {
	node := brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{})
	t.Parallel()
	r := node()
	h, kit := newHarnesses(t, r.VirtualHost(t))
	kit.SplitsDeadLetters = true
	kit.Oversized[adaptertest.DLQ] = func(t testing.TB, origin, _ string) adaptertest.Message {
		h.unlimited.Store(origin, h.uses.channel(t)) // it has the old limit
		lowerLimit(t, r)
		return adaptertest.Message{
			Body: bytes.Repeat([]byte("oversized "), maxMessage/8), Headers: []adaptertest.Header{{Name: "theirs", Value: []byte("1")}},
		}
	}
	adaptertest.RunHostile(t, kit)
}

// A message that is too large for the broker fails alone in a Publish. In a queue without a dead-letter exchange it
// does not block others and is not lost: it goes to the DLQ in parts, which are marked as parts.
func TestATooLargeMessageGoesToTheDLQInParts(t *testing.T) {
	own := brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ4})
	t.Parallel()
	node := own()
	l := newFixture(t, node, func(l *fixture) {
		l.declareQueue(amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}) // it does not dead-letter
	})
	l.declared()
	l.write(l.queue, amqp091.Publishing{MessageId: "large", DeliveryMode: amqp091.Persistent, Body: make([]byte, 2*maxMessage+1)}) // two parts are equal
	neighbours := ids(20)
	l.publishMessages(neighbours...)
	lowerLimit(t, node)
	l.open() // its channels have the new limit
	err := l.client.Publisher().Publish(l.queue,
		message.NewMessage("before", nil), message.NewMessage("refused", make([]byte, maxMessage+1)), message.NewMessage("behind", nil))
	if text := fmt.Sprint(err); !strings.Contains(text, "message 2 of 3: ") || strings.Contains(text, "message 1 of") || strings.Contains(text, "message 3 of") {
		t.Errorf("publishing: %v, want that the second message alone is refused", err)
	}
	l.consume(func(msg *message.Message, r run) error {
		if msg.UUID == "large" || r.attempt == 1 {
			return errHandler
		}
		return nil
	})
	l.awaitEnds(append([]string{"large", "before", "behind"}, neighbours...))
	l.mu.Lock()
	if n := l.countLocked("intake paused"); n > 0 || len(l.dead) != 1 || len(l.dead["large"]) != 1 {
		t.Errorf("paused %d times, dead letters %v, want 0 times and only the large message", n, l.deadIDsLocked())
	}
	l.mu.Unlock()
	l.awaitReady(l.queue, 0)
	l.awaitReady(l.queue+".dlq", 3)
	q, err := l.client.Operations().DeadLetters(t.Context(), mq.DeadLetterConfig{Topic: l.queue})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sizes, places := make(map[string]int), make(map[deadletter.Position]bool)
	for m, err := range deadletter.Browse(ctx, q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(m.Mismatch, " of a message whose body is too large")
		sizes[before], places[m.Position] = len(m.Body), true
	}
	want := map[string]int{"it is part 1/3": maxMessage, "it is part 2/3": maxMessage, "it is part 3/3": 1}
	if !maps.Equal(sizes, want) || len(places) != len(want) {
		t.Errorf("the DLQ has %v at %d positions, want %v at three", sizes, len(places), want)
	}
}
