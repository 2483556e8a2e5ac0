package redelivertest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/redelivertest"
)

var errNoSuchCard = errors.New("no such card")

// bank is a dependency of the service.
type bank struct{ opens time.Time }

// charge is the handler under test.
func (k bank) charge(msg *message.Message) error {
	switch {
	case len(msg.Payload) == 0:
		return redeliver.Permanent(errNoSuchCard)
	case time.Now().Before(k.opens):
		return errors.New("bank is closed")
	default:
		return nil
	}
}

var policy = redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Minute, 10*time.Minute, time.Hour)}

// t is the parameter of your test function: func TestCharge(t *testing.T).
var t *testing.T

// A bank that opens in 40 minutes: the message succeeds at the fourth attempt, after 71 minutes that take no time.
//
//nolint:testableexamples // TestExample runs it
func ExampleRun() {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: policy})
		orders := billing.Handle("orders", bank{opens: time.Now().Add(40 * time.Minute)}.charge)

		b.Publish("orders", message.NewMessage("o-1", []byte("4711")))

		got := orders.Outcome("o-1") // when everything is at rest
		if !got.Committed || len(got.Attempts) != 4 || got.Took != 71*time.Minute {
			t.Error(got)
		}
		t.Log(got) // a line for each event
	})
}

// Without a bubble the broker uses real time.
func ExampleNew() {
	b, end := newBroker() // redelivertest.New(t) in a test
	defer end()
	policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(10 * time.Millisecond)}
	orders := b.Open(redelivertest.Config{Group: "billing", Policy: policy}).Handle("orders", bank{opens: time.Now().Add(time.Hour)}.charge)

	b.Publish("orders", message.NewMessage("o-1", []byte("4711")), message.NewMessage("o-2", nil))
	for _, id := range []string{"o-1", "o-2"} {
		got := orders.Outcome(id)
		fmt.Println(got.ID, len(got.Attempts), got.State.Reason)
	}
	// Output:
	// o-1 2 exhausted
	// o-2 1 permanent
}

// A dead letter prints as one line.
func ExampleSubscription_DeadLetters() {
	b, end := newBroker() // redelivertest.Run provides one
	defer end()
	orders := b.Open(redelivertest.Config{Group: "billing", Policy: policy}).Handle("orders", bank{}.charge)

	b.Publish("orders", message.NewMessage("o-1", nil))
	for _, dead := range orders.DeadLetters() {
		fmt.Println(dead)
	}
	// Output: o-1 on orders.billing.dlq, attempts: 1, permanent: no such card
}

// Table tests need a bubble for each row.
func TestCharge(t *testing.T) {
	for name, c := range map[string]struct {
		card     string
		closed   time.Duration
		reason   redeliver.Reason // why it is in the DLQ; empty when it was handled
		attempts int
		took     time.Duration
	}{
		"open":           {"4711", 0, "", 1, 0},
		"opens soon":     {"4711", time.Minute, "", 2, time.Minute},
		"closed all day": {"4711", 24 * time.Hour, redeliver.ReasonExhausted, 4, 71 * time.Minute},
		"no such card":   {"", 0, redeliver.ReasonPermanent, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				billing := b.Open(redelivertest.Config{Group: "billing", Policy: policy})
				orders := billing.Handle("orders", bank{opens: time.Now().Add(c.closed)}.charge)
				b.Publish("orders", message.NewMessage("o-1", []byte(c.card)))
				got := orders.Outcome("o-1")
				if got.State.Reason != c.reason || len(got.Attempts) != c.attempts || got.Took != c.took {
					t.Errorf("want %q after %d attempts and %s: %s", c.reason, c.attempts, c.took, got)
				}
			})
		})
	}
}

// Run the example here, because it needs a test and so has no output of its own.
func TestExample(test *testing.T) {
	t = test
	ExampleRun()
}
