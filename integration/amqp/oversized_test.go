//go:build prove

package amqp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// maxMessage is the largest message that the brokers of these tests take from then on, and oversized is larger.
const (
	maxMessage = 1 << 20
	oversized  = 2 << 20
)

// lowerLimit has a node take no message above maxMessage on channels that are opened from now on, until the test's end.
func lowerLimit(t *testing.T, r *brokers.Rabbit) {
	t.Helper()
	set := func(ctx context.Context, n string) {
		// 3.10 reads the one, 4.0 the other.
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

// The limit of the broker is lowered (RabbitMQ 4 takes 16 MiB, 3.13 took 128) while a larger message is in the queue. It
// fails, and no queue takes it: it holds up nobody, a stub in the DLQ says what became of it, and the broker moves the
// original to where the queue dead-letters.
func TestAMessageThatIsTooLargeHoldsUpNoOther(t *testing.T) {
	nodes := map[string]func() *brokers.Rabbit{
		"3.10": brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{}),
		"4.0":  brokers.OwnRabbitMQSoon(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ4}),
	}
	t.Parallel()
	for version, node := range nodes {
		r := node()
		for name, args := range map[string]amqp091.Table{"ours": nil, "theirs": {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum}} {
			t.Run(name+" on "+version, func(t *testing.T) {
				l := newLab(t, r, func(l *lab) {
					if args != nil {
						l.declareQueue(args)
					}
				})
				l.declared()
				body := bytes.Repeat([]byte("x"), oversized)
				before, behind := ids(20), []string{"behind-1", "behind-2"}
				l.write(l.queue, amqp091.Publishing{MessageId: "large", DeliveryMode: amqp091.Persistent, Body: body, Headers: amqp091.Table{"theirs": "1"}})
				l.put(before...)
				lowerLimit(t, r)
				l.open() // its channels know the limit
				l.consume(func(msg *message.Message, r run) error {
					if msg.UUID == "large" || r.attempt == 1 {
						return errDeclined
					}
					return nil
				})
				l.finished(append([]string{"large"}, before...))
				l.put(behind...)
				l.finished(behind)
				l.nothingEarly()
				l.mu.Lock()
				if n := l.count("intake paused"); n > 0 || len(l.dead) != 1 || len(l.dead["large"]) != 1 {
					t.Errorf("paused %d times, dead letters %v, want none and the large one", n, l.deadIDs())
				}
				l.mu.Unlock()
				l.awaitReady(l.queue, 0)
				for _, m := range l.stubAnd(name == "ours") {
					st := m.State
					if want := fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256(body)); st.Truncated != "" && (st.Truncated != want ||
						st.ID != "large" || st.Reason != redeliver.ReasonUnschedulable || st.Attempts != 1 || len(m.Body) > 0) {
						t.Errorf("the stub has %d bytes and says %+v", len(m.Body), st)
					}
					if st.Truncated == "" && (!bytes.Equal(m.Body, body) || m.ID != "large") {
						t.Errorf("the original is %s with %d bytes", m.ID, len(m.Body))
					}
				}
			})
		}
	}
}

// stubAnd reads the DLQ: a stub, and perhaps the original.
func (l *lab) stubAnd(original bool) []*deadletter.Message {
	l.Helper()
	want := 1
	if original {
		want = 2
	}
	l.awaitReady(l.queue+".dlq", want)
	q, err := l.client.DeadLetters(l.Context(), amqp.DeadLetterConfig{Topic: l.queue})
	if err != nil {
		l.Fatal(err)
	}
	defer q.Close()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	var all []*deadletter.Message
	stubs := 0
	err = deadletter.Browse(ctx, q, deadletter.Filter{}, 10, func(m *deadletter.Message) bool {
		if m.State.Truncated != "" {
			stubs++
			where := "the broker has dead-lettered the original from queue " + l.queue
			if !strings.Contains(m.Mismatch, where) {
				l.Errorf("the stub says %q, want %q", m.Mismatch, where)
			}
		}
		all = append(all, m)
		return true
	})
	if err != nil {
		l.Fatal(err)
	}
	if stubs != 1 || len(all) != want {
		l.Errorf("%d dead letters, %d of them stubs, want %d and 1", len(all), stubs, want)
	}
	return all
}
