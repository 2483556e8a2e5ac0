//go:build prove

package amqp_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

// fillByBroker creates a DLQ that RabbitMQ itself fills for the fixture's queue, and opens it.
func (d *failingService) fillByBroker(args amqp091.Table) {
	d.Helper()
	dlq := d.queue + ".others"
	args[amqp091.QueueTypeArg] = amqp091.QueueTypeQuorum
	d.declare(dlq, args)
	d.declare(d.queue, amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq})
	d.declared()
}

func (d *failingService) openFilledByBroker() deadletter.Queue {
	d.Helper()
	q, err := d.client.Operations().DeadLetters(d.Context(), mq.DeadLetterConfig{Topic: d.queue, DLQ: d.queue + ".others"})
	if err != nil {
		d.Fatal(err)
	}
	return q
}

// reject publishes a message to a queue and has its consumer reject it.
func (d *failingService) reject(queue string, p amqp091.Publishing) {
	d.Helper()
	d.write(queue, p)
	got, ok, err := d.raw.Get(queue, false)
	if err != nil || !ok {
		d.Fatalf("reading %s: %v, %v", queue, ok, err)
	}
	if err := got.Reject(false); err != nil {
		d.Fatal(err)
	}
}

// RabbitMQ's own dead letters have origin and reason. A message of another queue is refused. A replayed one comes
// back unchanged, without RabbitMQ's headers.
func TestADLQThatRabbitMQFilledIsReplayed(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := newFailingService(t, b, nil)
			d.fillByBroker(amqp091.Table{})
			was := amqp091.Publishing{
				Headers:     amqp091.Table{"n": int32(7), "list": []any{"a", int64(1)}, "raw": []byte{0, 0xff}, "tenant": "acme"},
				ContentType: "application/json", CorrelationId: "c-1", MessageId: "mine", Type: "order", Body: []byte("{}"), DeliveryMode: amqp091.Persistent,
			}
			d.reject(d.queue, was)
			elsewhere, err := d.raw.QueueDeclare("", false, false, true, false, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": d.queue + ".others"})
			if err != nil {
				t.Fatal(err)
			}
			d.reject(elsewhere.Name, amqp091.Publishing{MessageId: "other", Body: []byte("o")})
			d.awaitReady(d.queue+".others", 2)
			q := d.openFilledByBroker()
			defer q.Close()
			found := messagesInDLQ(t, q)
			if len(found) != 2 {
				t.Fatalf("%d dead letters, want 2", len(found))
			}
			slices.SortFunc(found, func(x, y *deadletter.Message) int { return strings.Compare(x.ID, y.ID) }) // they were dead-lettered from two queues
			m, st := found[0], found[0].State
			if m.ID != "mine" || m.Writer != deadletter.WriterRabbitMQ || st.Reason != redeliver.ReasonRejected || st.Origin != d.queue || st.Attempts != 1 ||
				st.FirstFailed.IsZero() || st.LastFailed.IsZero() || m.Mismatch != "" || len(m.Foreign) == 0 || len(m.Headers) != 4 {
				t.Errorf("the dead letter is %+v", m)
			}
			if found[1].ID != "other" || found[1].Mismatch == "" {
				t.Errorf("a dead letter of another queue is %+v", found[1])
			}
			got := make(chan amqp091.Delivery, 1)
			d.consume(func(msg *message.Message, _ run) error {
				got <- *amqp.DeliveryFromContext(msg.Context())
				return nil
			})
			task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"})
			if err != nil || task.Counts.Replayed != 1 || task.Counts.Refused != 1 {
				t.Fatalf("the replay says %+v: %v", task, err)
			}
			select {
			case again := <-got:
				if !reflect.DeepEqual(again.Headers, was.Headers) || again.ContentType != was.ContentType || again.CorrelationId != was.CorrelationId ||
					again.MessageId != was.MessageId || again.Type != was.Type || string(again.Body) != "{}" {
					t.Errorf("it came back as %+v, headers %#v", again, again.Headers)
				}
			case <-time.After(maxWait):
				t.Fatal("it did not come back")
			}
			if left := idsInDLQ(t, q); !slices.Equal(left, []string{"other"}) {
				t.Errorf("%q are in the DLQ, want the other message", left)
			}
		})
	}
}

// RabbitMQ keeps a producer's headers. So a producer could choose the error of a dead letter, exclude it from every
// replay, and claim that its headers could not be read.
func TestADLQThatRabbitMQFilledTrustsNoForgedHeaders(t *testing.T) {
	t.Parallel()
	d := newFailingService(t, brokers.RequireRabbitMQ4(t), nil)
	d.fillByBroker(amqp091.Table{})
	forged := map[string]amqp091.Table{
		"another cause": {redeliver.HeaderAttempt: "1", redeliver.HeaderError: "connection refused, please replay"},
		"another group": {redeliver.HeaderAttempt: "1", redeliver.HeaderGroup: "mail"},
		"many replays":  {redeliver.HeaderAttempt: "1", redeliver.HeaderReplays: "1000"},
		"unreadable":    {redeliver.HeaderAttempt: "1", amqp.HeaderRaw: []byte{1, 2, 3}},
		"another route": {amqp.HeaderRoutingKey: "payments", amqp.HeaderExchange: "bank", amqp.HeaderForeign: amqp091.Table{"redeliver-x": "y"}},
	}
	for id, headers := range forged {
		headers["tenant"] = "acme"
		d.reject(d.queue, amqp091.Publishing{MessageId: id, Headers: headers})
	}
	d.awaitReady(d.queue+".others", len(forged))
	q := d.openFilledByBroker()
	defer q.Close()
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if st := m.State; m.Writer != deadletter.WriterRabbitMQ || st.Reason != redeliver.ReasonRejected || st.Error != "RabbitMQ dead-lettered it: rejected" ||
			st.Replays != 0 || m.Mismatch != "" || len(m.Findings) != len(forged[m.ID])-1 {
			t.Errorf("%s is filled by %s, has the error %q after %d replays, mismatch %q, findings %v", m.ID, m.Writer, st.Error, st.Replays, m.Mismatch, m.Findings)
		}
	}
	got := make(chan *amqp091.Delivery, len(forged))
	d.consume(func(msg *message.Message, _ run) error {
		got <- amqp.DeliveryFromContext(msg.Context())
		return nil
	})
	if task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil || task.Counts.Replayed != int64(len(forged)) {
		t.Fatalf("the replay says %+v: %v", task, err)
	}
	for range forged {
		select {
		case again := <-got:
			if !reflect.DeepEqual(again.Headers, forged[again.MessageId]) || again.RoutingKey == "payments" {
				t.Errorf("%s came back with the headers %#v and the routing key %q", again.MessageId, again.Headers, again.RoutingKey)
			}
		case <-time.After(maxWait):
			t.Fatal("one message did not come back")
		}
	}
	own := strings.NewReader(fmt.Sprintf(`{"origin":%q,"group":%[1]q,"id":"o-1","body":"eA==","headers":[],"filler":"redeliver","state":[{"name":"redeliver-attempt","value":"4"}]}`, d.queue))
	if task, err := deadletter.Import(t.Context(), q, own, deadletter.ImportOptions{Who: "ann", Why: "test"}); err == nil || !strings.Contains(err.Error(), d.queue+".dlq") || task.Counts.Imported != 0 {
		t.Errorf("a dead letter of redeliver's was imported: %+v, %v", task.Counts, err)
	}
}

// RabbitMQ moves an expired message to our own DLQ with the headers of its producer. They are not believed there.
func TestAnExpiredMessageInOurDLQTrustsNoForgedHeaders(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := newFailingService(t, b, nil)
			d.declared()
			headers := amqp091.Table{
				redeliver.HeaderAttempt: "1", redeliver.HeaderError: "connection refused, please replay", redeliver.HeaderReplays: "1000",
				redeliver.HeaderGroup: d.queue, redeliver.HeaderOrigin: d.queue, amqp.HeaderRoutingKey: "payments",
			}
			d.write(d.queue, amqp091.Publishing{MessageId: "forged", Expiration: "1", Headers: headers})
			d.awaitReady(d.queue+".dlq", 1)
			q, kill := d.openDead()
			defer kill()
			all := messagesInDLQ(t, q)
			if len(all) != 1 {
				t.Fatalf("%d dead letters, want 1", len(all))
			}
			found := all[0]
			if st := found.State; found.Writer != deadletter.WriterRabbitMQ || st.Error == headers[redeliver.HeaderError] || st.Replays != 0 || found.Mismatch != "" {
				t.Errorf("it is written by %q, has the error %q after %d replays, mismatch %q", found.Writer, st.Error, st.Replays, found.Mismatch)
			}
		})
	}
}

// A queue removes a message after six deliveries. Scans are refused in time and before they read, so that the message
// stays for the replay.
func TestAScanRemovesNoMessage(t *testing.T) {
	t.Parallel()
	for version, b := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			const limit = 6
			d := newFailingService(t, b, func(l *fixture) { l.cfg.ManagementURL = b.Management() })
			d.fillByBroker(amqp091.Table{"x-delivery-limit": limit})
			d.reject(d.queue, amqp091.Publishing{MessageId: "a"})
			d.awaitReady(d.queue+".others", 1)
			q := d.openFilledByBroker()
			defer q.Close()
			if look := q.Info().ReadEffect; !strings.Contains(look, fmt.Sprintf("after %d deliveries", limit)) {
				t.Errorf("the effect of reading is %q, without the limit", look)
			}
			looks := 0
			for range 4 * limit {
				for _, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
					if err == nil {
						looks++
					} else if !strings.Contains(err.Error(), "delivery limit") {
						t.Fatal(err)
					}
				}
			}
			if looks != limit/2 {
				t.Errorf("%d reads, want %d", looks, limit/2)
			}
			if n := d.ready(d.queue + ".others"); n != 1 {
				t.Fatalf("%d messages are in the DLQ after the scans, want 1", n)
			}
			d.fixed.Store(true)
			d.makeDeadLetters() // its handler
			if task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"}); err != nil || task.Counts.Replayed != 1 {
				t.Errorf("the replay says %+v: %v", task, err)
			}
			d.awaitEnds([]string{"a"})
		})
	}
}
