package redelivertest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

var errDown = errors.New("bank is down")

func declines(*message.Message) error { return errDown }
func succeeds(*message.Message) error { return nil }

// quick has three retries after 1, 2 and 4 s.
var quick = redeliver.Policy{Backoff: redeliver.Steps(time.Second, 2*time.Second, 4*time.Second)}

func open(b *redelivertest.Broker, p redeliver.Policy) *redelivertest.Client {
	return b.Open(redelivertest.Config{Group: "billing", Policy: p})
}

func msg(id string) *message.Message { return message.NewMessage(id, []byte(id)) }

// The clock of middleware.Retry's watch is a global that was created outside the bubble.
func TestTimeoutsAreVirtual(t *testing.T) {
	for range 3 { // one bubble after another
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			orders := open(b, quick).Handle("orders", func(msg *message.Message) error { // 5 minutes, by default
				if d, ok := msg.Context().Deadline(); !ok || time.Until(d) != redeliver.DefaultTimeout {
					t.Errorf("its deadline is in %s", time.Until(d))
				}
				<-msg.Context().Done()
				return msg.Context().Err()
			})
			b.Publish("orders", msg("o-1"))
			got := orders.Outcome("o-1")
			if want := 4*redeliver.DefaultTimeout + 7*time.Second; got.State.Reason != redeliver.ReasonTimeout || got.Took != want || got.Attempts[0].Took != redeliver.DefaultTimeout {
				t.Errorf("want %s: %s", want, got)
			}
		})
	}
}

func TestAHandlerThatHangsIsATimeout(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := open(b, redeliver.Policy{MaxRetries: redeliver.NoRetries}).Handle("orders", func(*message.Message) error {
			<-t.Context().Done()
			return nil
		})
		b.Publish("orders", msg("o-1"))
		for range 2 {
			if got := orders.Outcome("o-1"); got.State.Reason != redeliver.ReasonTimeout || got.Took != redeliver.DefaultTimeout {
				t.Error(got)
			}
			time.Sleep(time.Minute) //nolint:forbidigo // virtual: it is stuck then
		}
		if got := orders.Outcome("o-1").String(); !strings.HasSuffix(got, "its handler still runs") {
			t.Error(got)
		}
	})
}

func TestGroupsFailAlone(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		b.Publish("orders", msg("o-1")) // before there is a reader
		billing := open(b, quick).Handle("orders", declines)
		mail := b.Open(redelivertest.Config{Group: "mail"}).Handle("orders", succeeds)
		if got := billing.Outcome("o-1"); got.State.Reason != redeliver.ReasonExhausted {
			t.Error(got)
		}
		if got := mail.Outcome("o-1"); !got.Committed || len(got.Attempts) != 1 || got.Took != 0 || len(mail.DeadLetters()) != 0 {
			t.Error(got)
		}
	})
}

func TestKeysAndMaxInFlight(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var running atomic.Int32
		handler := func(*message.Message) error {
			if n := running.Add(1); n > 3 {
				t.Errorf("%d run at once", n)
			}
			defer running.Add(-1)
			time.Sleep(time.Second) //nolint:forbidigo // virtual
			return nil
		}
		one := b.Open(redelivertest.Config{Group: "one", MaxInFlight: 3}).Handle("orders", handler)
		for i := range 6 {
			b.Publish("orders", msg(fmt.Sprint("free-", i)))
		}
		one.Outcomes()
		if b.Elapsed() != 2*time.Second {
			t.Errorf("6 messages of a second each, 3 at once, took %s", b.Elapsed())
		}
		for i := range 4 {
			m := msg(fmt.Sprint("tied-", i))
			redelivertest.SetKey(m, "card 4711")
			b.Publish("orders", m)
		}
		var order []string
		for _, o := range one.Outcomes()[6:] {
			order = append(order, fmt.Sprint(o.ID, " ", o.Took))
		}
		if got := strings.Join(order, ", "); got != "tied-0 1s, tied-1 2s, tied-2 3s, tied-3 4s" {
			t.Error(got)
		}
	})
}

func TestALongWaitHopsBetweenLevels(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		p := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(95 * time.Second), Levels: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute}}
		orders := open(b, p).Handle("orders", declines)
		b.Publish("orders", msg("o-1"))
		got := orders.Outcome("o-1")
		if got.Took != 95*time.Second || !strings.Contains(got.String(), "hopped from orders.billing.retry.1m to orders.billing.retry.30s") {
			t.Error(got)
		}
	})
}

// A message does not hop for the rest of a wait that is only jitter, even if it is longer than a level.
func TestJitterNeedsNoHops(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := open(b, redeliver.Policy{MaxRetries: 1, Backoff: redeliver.ExponentialBackoff{Base: time.Minute}}).Handle("orders", declines)
		b.Publish("orders", msg("o-1"))
		got := orders.Outcome("o-1")
		if got.Took != got.Waits[0].State.Due.Sub(got.Attempts[0].Start) || got.Took < time.Minute+5*time.Second || strings.Contains(got.String(), "hopped") {
			t.Error(got)
		}
	})
}

func TestRefusedWritesAreTriedAgain(t *testing.T) {
	for _, place := range []redelivertest.Place{redelivertest.PlaceLevels, redelivertest.PlaceDLQ} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			p := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)}
			orders := open(b, p).Handle("orders", declines)
			restore := orders.RefuseWrites(place)
			time.AfterFunc(time.Hour, restore)
			b.Publish("orders", msg("o-1"))
			got := orders.Outcome("o-1")
			if got.State.Reason != redeliver.ReasonExhausted || len(got.Attempts) != 2 || got.Took < time.Hour || got.Took > time.Hour+20*time.Second {
				t.Error(got)
			}
		})
	}
}

// The log of a message has the wait of a retry before its run, also if the retry was due before the event of its wait.
func TestReportsAreInOrder(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var reported []string
		billing := b.Open(redelivertest.Config{Group: "billing", Policy: quick, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if _, ok := e.(redeliver.RetryScheduled); ok {
				time.Sleep(time.Minute) //nolint:forbidigo // virtual
			}
			reported = append(reported, fmt.Sprintf("%T", e)[len("redeliver."):])
		})})
		orders := billing.Handle("orders", declines)
		b.Publish("orders", msg("o-1"))
		got := orders.Outcome("o-1")
		if got.Took != 3*time.Minute || len(reported) != 8 || reported[2] != "Attempted" || reported[6] != "Attempted" || reported[7] != "DeadLettered" {
			t.Errorf("reported %q: %s", reported, got)
		}
	})
}

func TestADecodeThatPanicsMakesADeadLetter(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		billing := b.Open(redelivertest.Config{Group: "billing", Decode: func(msg *message.Message) error {
			if len(msg.Payload) == 0 {
				panic("no bytes")
			}
			msg.Payload = slices.Concat([]byte("decoded "), msg.Payload)
			return nil
		}})
		orders := billing.Handle("orders", func(msg *message.Message) error {
			if string(msg.Payload) != "decoded o-2" {
				t.Errorf("the handler got %q", msg.Payload)
			}
			return nil
		})
		b.Publish("orders", message.NewMessage("o-1", nil), msg("o-2"))
		if got := orders.Outcome("o-1"); got.State.Reason != redeliver.ReasonUndecodable || len(got.Attempts) != 0 {
			t.Error(got)
		}
		if got := orders.Outcome("o-2"); !got.Committed {
			t.Error(got)
		}
	})
}

func TestAServicesOwnRouter(t *testing.T)     { ownRouter(t, false) }
func TestARouterThatIsRunByHand(t *testing.T) { ownRouter(t, true) }

func ownRouter(t *testing.T, byHand bool) {
	t.Helper()
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		billing := open(b, quick)
		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		router.AddMiddleware(middleware.Retry())
		router.AddHandler("charge", "orders", billing.Subscriber(), "invoices", billing.Publisher(), func(m *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg("of " + m.UUID)}, nil
		})
		invoices := b.Open(redelivertest.Config{Group: "mail"}).Handle("invoices", succeeds)
		if byHand {
			go func() { _ = router.Run(t.Context()) }()
		} else {
			b.Start(router)
		}
		b.Publish("orders", msg("o-1"))
		if got := invoices.Outcome("of o-1"); !got.Committed {
			t.Error(got)
		}
	})
}

func TestADelayedMessageWaitsOnTheBroker(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		billing := open(b, quick)
		orders := billing.Handle("orders", succeeds)
		m := msg("o-1")
		delay.Message(m, delay.For(90*time.Minute))
		if err := billing.Publisher().Publish("orders", m); err != nil {
			t.Fatal(err)
		}
		restore := orders.RefuseWrites(redelivertest.PlaceLevels)
		if err := billing.Publisher().Publish("orders", m); err == nil {
			t.Error("the broker accepted a message that it refuses")
		}
		restore()
		if w := orders.Waiting(); len(w) != 1 || time.Until(w[0].State.Due) != 90*time.Minute {
			t.Errorf("waiting: %+v", w)
		}
		got := orders.Outcome("o-1")
		if !got.Committed || b.Elapsed() != 90*time.Minute {
			t.Errorf("after %s: %s", b.Elapsed(), got)
		}
	})
}

func TestNewUsesRealTime(t *testing.T) {
	t.Parallel()
	b := redelivertest.New(t)
	orders := open(b, redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(20 * time.Millisecond)}).Handle("orders", declines)
	b.Publish("orders", msg("o-1"))
	got := orders.Outcome("o-1")
	if got.State.Reason != redeliver.ReasonExhausted || len(got.Attempts) != 3 || got.Took < 40*time.Millisecond {
		t.Error(got)
	}
	if len(orders.Events()) == 0 || len(orders.DeadLetters()) != 1 {
		t.Error(orders.Events())
	}
}

func TestManyDeadLettersTakeNoTime(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := open(b, redeliver.Policy{Backoff: redeliver.RocketMQ(), Outage: redeliver.Outage{Off: true}}).Handle("orders", declines)
		for i := range 300 {
			b.Publish("orders", msg(fmt.Sprint("o-", i)))
		}
		if n := len(orders.DeadLetters()); n != 300 {
			t.Errorf("%d dead letters", n)
		}
		if want := 4*time.Hour + 45*time.Minute + 40*time.Second; b.Elapsed() != want {
			t.Errorf("it took %s, want %s", b.Elapsed(), want)
		}
	})
}
