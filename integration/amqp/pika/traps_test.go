//go:build prove

package pika_test

import (
	"context"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// blocked is a handler that reports its start and runs until its context ends.
func blocked(begun chan<- struct{}) message.NoPublishHandlerFunc {
	once := sync.OnceFunc(func() { close(begun) })
	return func(msg *message.Message) error {
		once()
		<-msg.Context().Done()
		return msg.Context().Err()
	}
}

// A copied expiration would empty the DLQ.
func TestAnExpirationNeitherEndsTheWaitNorEmptiesTheDLQ(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		var at []time.Time // handlers write it one after another
		b.handler = func(*message.Message) error {
			at = append(at, time.Now())
			return fidelity.ErrDeclined
		}
		b.start(b.config(redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(2 * time.Second), Levels: []time.Duration{2 * time.Second}}))
		m := wire{Key: b.queue, Body: []byte("expires"), Props: props{"expiration": "600000", "timestamp": time.Now().Unix(), "delivery_mode": 2}}
		b.peer.put(t, m)
		for _, s := range b.observations(1, 2, byBody)["expires"] {
			wantSame(t, "what the handler got", s.wire, m)
		}
		letter := b.peer.Take(t, b.queue+".dlq", 1)[0]
		if ours := state(&letter); ours[redeliver.HeaderReason] != "exhausted" {
			t.Errorf("it is in the DLQ with %v", ours)
		}
		wantSame(t, "the dead letter", letter, b.wantDeadLetter(m))
		if waited := at[1].Sub(at[0]); waited < 2*time.Second {
			t.Errorf("it waited for %v, want 2s", waited)
		}
		b.checkNoFaults()
	})
}

// The point in the name of a level once counted as the end of the level. The level of a waiting message was then
// unknown, and the rest of its wait was treated as forged and cut off.
func TestALevelWithAFractionIsParsed(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		var at []time.Time // handlers write it one after another
		b.handler = func(*message.Message) error {
			at = append(at, time.Now())
			return fidelity.ErrDeclined
		}
		b.start(b.config(redeliver.Policy{
			MaxRetries: 1, Backoff: redeliver.Fixed(3300 * time.Millisecond), Levels: []time.Duration{100 * time.Millisecond, 1500 * time.Millisecond, time.Minute},
		}))
		b.peer.put(t, wire{Key: b.queue, Body: []byte("x")})
		b.peer.Take(t, b.queue+".dlq", 1)
		if waited := at[1].Sub(at[0]); waited < 3300*time.Millisecond || len(b.events.Ignored()) > 0 {
			t.Errorf("it waited for %v; not trusted: %v", waited, b.events.Ignored())
		}
		b.checkNoFaults()
	})
}

// An expiration is a deadline. A message that has passed it does not run, and a message whose retry would pass it does
// not wait. Without a timestamp it counts from the first read, and through all hops.
func TestARetryThatWouldPassTheExpirationIsDeadLettered(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(redeliver.Policy{
			MaxRetries: 5, Backoff: redeliver.Fixed(2 * time.Second), Levels: []time.Duration{2 * time.Second},
		}))
		b.peer.put(t, wire{Key: b.queue, Body: []byte("no time"), Props: props{"expiration": "5000"}},
			wire{Key: b.queue, Body: []byte("late"), Props: props{"expiration": "5000", "timestamp": time.Now().Add(-time.Hour).Unix()}})
		for body, letter := range b.deadLetters(2, byBody) {
			want := map[string]string{"no time": "3", "late": "0"}[body]
			if ours := state(&letter); ours[redeliver.HeaderReason] != "expired" || ours[redeliver.HeaderAttempt] != want {
				t.Errorf("%s is in the DLQ with %v, want it expired after %s attempts", body, ours, want)
			}
			if letter.Props["expiration"] != nil {
				t.Errorf("%s expires in the DLQ", body)
			}
		}
		b.checkNoFaults()
	})
}

// The broker closes the channel of a publisher that uses another user's id.
func TestAnotherUsersMessage(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		user := fidelity.Unique("user")
		b.user(user)
		address, err := url.Parse(b.rabbit.URL())
		if err != nil {
			t.Fatal(err)
		}
		address.User = url.UserPassword(user, user)
		b.start(b.config(policy))
		m := wire{Key: b.queue, Body: []byte("theirs"), Props: props{"user_id": user, "delivery_mode": 2}}
		newPeer(t, address.String()).put(t, m)
		b.unchanged([]wire{m})
		b.checkNoFaults()
	})
}

// CC and BCC took effect when the message was published; a retry goes nowhere else.
func TestCopiesAreNotSentAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		b.declare(b.queue+".cc", nil)
		b.declare(b.queue+".bcc", nil)
		m := wire{Key: b.queue, Body: []byte("copied"), Props: props{"delivery_mode": 2}, Headers: headers{
			"CC": array(text(b.queue + ".cc")), "BCC": array(text(b.queue + ".bcc")),
		}}
		b.peer.put(t, m)
		delete(m.Headers, "BCC") // the broker removes it
		b.unchanged([]wire{m})
		b.wantMessages(b.queue+".cc", 1)
		b.wantMessages(b.queue+".bcc", 1)
		b.checkNoFaults()
	})
}

// The broker refuses a CC that is not an array. A publish with one is refused before it costs the channel.
func TestCopiesThatAreNoArray(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		_, err := b.peer.Do(publishing{"publish", wire{Key: b.queue, Body: []byte("x"), Headers: headers{"CC": text("other")}}})
		if err == nil {
			t.Error("the broker accepted a CC that is a text")
		}
		t.Logf("report: a CC that is a text: %v", err)
		msg := message.NewMessage("m", []byte("x"))
		msg.Metadata.Set("CC", "other")
		if err := b.client.Publisher().Publish(b.queue, msg); err == nil || !strings.Contains(err.Error(), "its header CC is not a list") {
			t.Error(err)
		}
		b.checkNoFaults()
	})
}

// RabbitMQ dead-lettered the message into our queue. The first attempt gets that history, and it is not a cycle.
func TestAMessageThatRabbitMQDeadLettered(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		b.declare(b.queue+".before", amqp091.Table{"x-message-ttl": int32(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.queue})
		m := wire{Key: b.queue + ".before", Body: []byte("dead before"), Props: props{"delivery_mode": 2, "message_id": "m"}, Headers: headers{"mine": text("x")}}
		b.peer.put(t, m)
		all := b.observations(1, 3, byBody)["dead before"]
		if death := all[0].Headers["x-death"]; death.Kind != "A" || all[0].Headers["x-first-death-queue"].text() != b.queue+".before" {
			t.Errorf("the first attempt sees %v", all[0].Headers)
		}
		m.Key = b.queue
		for name := range all[0].Headers {
			if strings.HasPrefix(name, "x-") {
				delete(all[0].Headers, name)
			}
		}
		for _, s := range all {
			wantSame(t, "attempt "+strconv.Itoa(s.attempt), s.wire, m)
		}
		letter := b.peer.Take(t, b.queue+".dlq", 1)[0]
		state(&letter)
		wantSame(t, "the dead letter", letter, b.wantDeadLetter(m))
		b.checkNoFaults()
	})
}

// A client copied an x-death that names all redeliver queues. For RabbitMQ 3 that would be a cycle, and it would drop
// the message.
func TestAnXDeathOfOurOwnQueuesIsNoCycle(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		var deaths []value
		for _, queue := range []string{"", ".retry", ".retry.100ms", ".retry.300ms", ".dlq"} {
			deaths = append(deaths, table(map[string]value{
				"queue": text(b.queue + queue), "reason": text("expired"), "count": raw("l", u64(1)...), "exchange": text(""),
				"routing-keys": array(text(b.queue)), "time": raw("T", u64(1_700_000_000)...),
			}))
		}
		m := wire{Key: b.queue, Body: []byte("copied onward"), Props: props{"delivery_mode": 2}, Headers: headers{
			"x-death": array(deaths...), "x-first-death-queue": text(b.queue + ".retry.100ms"), "x-first-death-reason": text("expired"),
			"x-first-death-exchange": text(""), "x-delivery-count": raw("l", u64(7)...), "x-mine": text("stays"),
		}}
		b.peer.put(t, m)
		all := b.observations(1, 3, byBody)["copied onward"]
		if all[0].Headers["x-death"].Kind != "A" || all[0].Headers["x-first-death-queue"].Kind != "S" {
			t.Errorf("the first attempt sees %v", all[0].Headers)
		}
		m.Headers = headers{"x-mine": text("stays")}
		for _, s := range all[1:] {
			wantSame(t, "attempt "+strconv.Itoa(s.attempt), s.wire, m)
		}
		letter := b.peer.Take(t, b.queue+".dlq", 1)[0]
		state(&letter)
		wantSame(t, "the dead letter", letter, b.wantDeadLetter(m))
		b.checkNoFaults()
	})
}

// The handler gets the broker's delivery count. It is not an attempt, and is not copied.
func TestADeliveryCountIsNotCopied(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.declare(b.queue, amqp091.Table{"x-queue-type": "quorum"})
		m := wire{Key: b.queue, Body: []byte("counted"), Props: props{"delivery_mode": 2}}
		b.peer.put(t, m)
		d, ok, err := b.ch.Get(b.queue, false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := d.Reject(true); err != nil {
			t.Fatal(err)
		}
		b.start(b.config(policy))
		all := b.observations(1, 3, byBody)["counted"]
		if count := all[0].Headers["x-delivery-count"]; count.Kind != "l" {
			t.Errorf("the first attempt sees %v", all[0].Headers)
		}
		for _, s := range all[1:] {
			wantSame(t, "attempt "+strconv.Itoa(s.attempt), s.wire, m)
		}
		letter := b.peer.Take(t, b.queue+".dlq", 1)[0]
		state(&letter)
		wantSame(t, "the dead letter", letter, b.wantDeadLetter(m))
		b.checkNoFaults()
	})
}

// A caller that waits for a reply gets it from the third attempt.
func TestADirectReplyWorksAfterRetries(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.handler = func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() < 3 {
				return fidelity.ErrDeclined
			}
			return b.ch.PublishWithContext(context.Background(), "", amqp.DeliveryFromContext(msg.Context()).ReplyTo, true, false,
				amqp091.Publishing{Body: []byte("answer to " + string(msg.Payload))})
		}
		b.start(b.config(policy))
		got := b.peer.call(t, wire{Key: b.queue, Body: []byte("question"), Props: props{"reply_to": "amq.rabbitmq.reply-to"}})
		if string(got) != "answer to question" {
			t.Errorf("the caller got %q", got)
		}
		for i, s := range b.observations(1, 3, byBody)["question"] {
			if reply, _ := s.Props["reply_to"].(string); !strings.HasPrefix(reply, "amq.rabbitmq.reply-to.") {
				t.Errorf("attempt %d gets reply-to %q", i+1, reply)
			}
		}
		b.checkNoFaults()
	})
}

// A service copies redeliver's headers. They belong to the user, are reported once, and are not trusted.
func TestHeadersWithOurNamesBelongToTheUser(t *testing.T) {
	onBoth(t, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		m := wire{Key: b.queue, Body: []byte("liar"), Props: props{"delivery_mode": 2}, Headers: headers{"mine": text("x")}}
		forged := headers{
			redeliver.HeaderAttempt: text("99"), redeliver.HeaderGroup: text(b.queue), redeliver.HeaderOrigin: text(b.queue),
			redeliver.HeaderDue: text("2999-01-01T00:00:00.000Z"), redeliver.HeaderID: text("theirs"), redeliver.HeaderReason: text("exhausted"),
			amqp.HeaderExchange: text("elsewhere"), amqp.HeaderRoutingKey: text("other"), amqp.HeaderCC: array(text("other")), amqp.HeaderBCC: array(text("other")),
			amqp.HeaderUserID: text("root"), amqp.HeaderExpiration: text("1"), amqp.HeaderReplyTo: text("x"), amqp.HeaderDeliveryMode: text("1"),
			amqp.HeaderForeign: table(map[string]value{redeliver.HeaderAttempt: text("77"), "mine": text("stolen")}),
			"redeliver-":       raw("x", 0xff),
		}
		maps.Copy(m.Headers, forged)
		b.peer.put(t, m)
		b.unchanged([]wire{m})
		found := b.events.Ignored()
		for name := range forged {
			if found[name] != 1 {
				t.Errorf("%s was reported %d times, want once", name, found[name])
			}
		}
		if len(found) != len(forged) {
			t.Errorf("reported: %v", found)
		}
		b.checkNoFaults()
	})
}

// wantMessages checks the number of messages in a queue.
func (b *fixture) wantMessages(queue string, want int) {
	b.Helper()
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		b.Fatal(err)
	}
	if q.Messages != want {
		b.Errorf("%s holds %d messages, want %d", queue, q.Messages, want)
	}
}
