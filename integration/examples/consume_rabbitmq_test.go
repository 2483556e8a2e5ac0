package examples_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// The programs differ in a few lines, and the new one is shorter.
func TestRabbitMQConsumeExampleIsAFewLines(t *testing.T) {
	before, after := source(t, "rabbitmq-consume/before"), source(t, "rabbitmq-consume/after")
	added := addedLines(before, after)
	if len(added) > 7 || len(before) >= 60 || len(after) >= len(before) {
		t.Errorf("after has %d lines for %d, of which these are new:\n%s", len(after), len(before), strings.Join(added, "\n"))
	}
}

// With redeliver ("after") the messages that fail end up in the DLQ.
func TestRabbitMQConsumeExample(t *testing.T) {
	t.Parallel()
	url := brokers.RequireRabbitMQ(t).URL()
	dir := buildAll(t, "rabbitmq-consume")
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := "charges-" + rand.Text()[:8]
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-delivery-limit": 1_000_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue + ".dlq"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if ch, err := conn.Channel(); err == nil {
			for _, suffix := range []string{"", ".retry", ".retry.suspects", ".retry.1s", ".dlq"} {
				_, _ = ch.QueueDelete(queue+suffix, false, false, false)
			}
		}
	})
	put := func(id, kind string) {
		t.Helper()
		if err := ch.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{MessageId: id, Type: kind, DeliveryMode: amqp.Persistent}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(p *program, want string) {
		t.Helper()
		if line, ok := p.next(); !ok || line != want {
			t.Fatalf("%q %t, want %q", line, ok, want)
		}
	}
	put("a", "card")
	before := start(t, nil, filepath.Join(dir, "before"), url, queue)
	expect(before, "charged a")
	before.signal(os.Interrupt)
	before.rest()

	after := start(t, nil, filepath.Join(dir, "after"), url, queue)
	put("b", "cheque")
	put("c", "card")
	expect(after, "charged c")
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		d, ok, err := ch.Get(queue+".dlq", true)
		if ok {
			if d.MessageId != "b" || d.Headers[redeliver.HeaderReason] != string(redeliver.ReasonExhausted) || d.Headers[redeliver.HeaderAttempt] != "4" {
				t.Errorf("in the DLQ is %+v", d)
			}
			break
		}
		select {
		case <-tick.C:
			if err != nil { // the program has not declared it yet
				if ch, err = conn.Channel(); err != nil {
					t.Fatal(err)
				}
			}
		case <-ctx.Done():
			t.Fatal("nothing is in the DLQ")
		}
	}
	after.signal(os.Interrupt)
	after.rest()
}
